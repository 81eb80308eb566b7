(() => {
  "use strict";
  const page = document.currentScript.dataset, kept = history.state?.folded ?? [];
  const name = section => section.querySelector("summary").textContent.replace(/\d[\d.,]*/g, "").trim();  // a figure in it changes
  const sections = [...document.querySelectorAll("details")];
  for (const section of sections) {
    if (kept.includes(name(section))) section.open = false;
    section.addEventListener("toggle", () => history.replaceState(
      {folded: sections.filter(one => !one.open).map(name)}, ""));
  }
  if (!page.refresh) return;  // the last page
  const isRead = () => document.querySelector(".points input:is(:hover, :focus)") || !getSelection().isCollapsed;
  const tellAge = () => {
    const isStale = Date.now() - Date.parse(page.written) > 1000 * page.stale;
    document.getElementById("stale").hidden = !isStale;
    document.querySelector("p.live[role=status]").hidden = isStale;  // it says that the page is live
  };
  tellAge();
  setInterval(() => { tellAge(); if (!isRead()) location.reload(); }, 1000 * page.refresh);
})();
