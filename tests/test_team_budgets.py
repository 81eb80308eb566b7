"""Tests of a team's budgets for a month."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from report_samples import gpu_rows, write_run

from greenlove_tracker import Tracker
from greenlove_tracker.errors import SettingError
from greenlove_tracker.meter import MeterInfo, SimulatedMeter
from greenlove_tracker.records import Field
from greenlove_tracker.team_budgets import TeamBudget, alert_once, check_team_budgets, team_budgets, used_in_month

NOVEMBER = datetime(2026, 11, 23, tzinfo=UTC).timestamp()
SITE = """
country = "DE"
[budgets]
webhook = "{webhook}"
[budgets.project.thesis]
kwh = 1e-6
[budgets.user."*"]
usd = 1e6
kgco2e = 1e-6
"""


class MeasuringMeter(SimulatedMeter):
    """Says that it measures: simulated runs count in no budget."""

    def start(self) -> MeterInfo:
        found = super().start()
        return replace(found, fields=(*(f for f in found.fields if f.name != "meter"), Field("meter", "scripted")))


@pytest.fixture(autouse=True)
def _site(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "xdg"))
    monkeypatch.setattr("greenlove_tracker.config_files.SITE_FILE", tmp_path / "etc.toml")


def logged(logs: Path, run_id: str = "20261121T120000-aaaa", *, project: str = "thesis", user: str = "ada") -> None:
    write_run(logs, gpu_rows(), run_id, fields={"project": project, "user": user})


def site(text: str) -> None:
    Path("etc.toml").write_text(text)


def test_budgets_are_read_from_the_sites_file():
    assert team_budgets({}).budgets == ()
    site(SITE.format(webhook="https://chat.example.org/1"))
    found = team_budgets({})
    assert found.webhook == "https://chat.example.org/1"
    assert found.budgets == (
        TeamBudget("project", "thesis", "kwh", 1e-6),
        TeamBudget("user", "*", "usd", 1e6),
        TeamBudget("user", "*", "kgco2e", 1e-6),
    )


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("budgets = 3", "budgets must be a table"),
        ("[budgets.team]\nkwh = 1", r"budgets.team: write \[budgets.project.NAME\]"),
        ("[budgets.project]\nthesis = 3", r"\[budgets.project.thesis\] must hold limits"),
        ("[budgets.project.thesis]\nwatts = 3", "watts: there are kwh, usd, kgco2e"),
        ("[budgets.project.thesis]\nkwh = -1", "kwh must be a positive number, not -1"),
        ("[budgets.project.thesis]\nkwh = true", "kwh must be a positive number, not True"),
        ('[budgets]\nwebhok = "http://x"', "budgets.webhok: did you mean webhook"),
        ("[budgets]\nwebhook = 3", "webhook must be an address"),
    ],
)
def test_a_bad_budget_is_told_with_its_place(text, says):
    site(text)
    with pytest.raises(SettingError, match=f"etc.toml: .*{says}" if "budgets = 3" not in text else says):
        team_budgets({})


def test_what_is_used_is_that_of_the_month_by_project_and_user(tmp_path):
    logs = tmp_path / "logs"
    for number, (project, user) in enumerate([("thesis", "ada"), ("thesis", "bob"), ("other", "bob")]):
        run_id = f"20261121T12000{number}-aaaa"
        logged(logs, run_id, project=project, user=user)
    budgets = (TeamBudget("project", "thesis", "kwh", 1e-6), TeamBudget("user", "*", "kwh", 1e6))
    thesis, ada, bob = used_in_month(logs, budgets, NOVEMBER)
    assert (thesis.name, thesis.month, thesis.is_exceeded) == ("thesis", "2026-11", True)
    assert (ada.name, bob.name, ada.is_exceeded) == ("ada", "bob", False)
    assert thesis.used == pytest.approx(2 * ada.used) and bob.used == pytest.approx(2 * ada.used)
    assert thesis.sentence.startswith("project thesis used ") and " in 2026-11" in thesis.sentence
    none = used_in_month(logs, budgets, datetime(2026, 12, 1, tzinfo=UTC).timestamp())
    assert [use.used for use in none] == [0.0]  # of December nothing, and no user


def test_each_alert_is_given_once_whoever_comes_first(tmp_path):
    logged(tmp_path / "logs")
    uses = used_in_month(tmp_path / "logs", (TeamBudget("project", "thesis", "kwh", 1e-6),), NOVEMBER)
    told: list[str] = []
    threads = [threading.Thread(target=alert_once, args=(uses, tmp_path / "logs", told.append)) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(told) == 1 and told[0].startswith("over budget: project thesis used ")


@pytest.fixture
def webhook():
    """Yield an address, and what is sent to it."""
    sent = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):  # the name that the base class calls
            sent.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_):
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/", sent
    server.shutdown()


def test_an_alert_goes_to_the_webhook_once_and_a_dead_one_is_told(tmp_path, webhook):
    address, sent = webhook
    logs = tmp_path / "logs"
    logged(logs)
    site(SITE.format(webhook=address))
    told: list[str] = []
    check_team_budgets(logs, NOVEMBER, told.append)
    check_team_budgets(logs, NOVEMBER, told.append)
    assert len(told) == 2 and {(each["quantity"], each["month"]) for each in sent} == {
        ("kwh", "2026-11"),
        ("kgco2e", "2026-11"),
    }
    assert all(each["text"] in told and each["used"] > each["limit"] for each in sent)
    site(SITE.format(webhook="http://127.0.0.1:9/").replace("thesis", "*").replace("project.*", 'project."*"'))
    logged(logs, "20261122T120000-bbbb", project="other")
    check_team_budgets(logs, NOVEMBER, told.append)
    assert told[-1] == "the alert was not sent to the site's webhook at 127.0.0.1: Connection refused"
    assert len([text for text in told if "not sent" in text]) == 1


def test_a_run_alerts_at_its_end_and_is_not_harmed(clock, caplog):
    site('[budgets.project."*"]\nkwh = 1e-9\n')
    for _ in range(2):
        with Tracker(
            epochs=2, project="p", meter=MeasuringMeter(clock, gpu_w=360.0), clock=clock, verbose=0
        ) as tracker:
            for _ in range(2):
                tracker.epoch_start()
                clock.pass_s(10.0)
                tracker.epoch_end()
        assert tracker.summary.epochs_done == 2
    assert caplog.text.count("over budget: project p used") == 1


def test_bad_budgets_are_told_and_the_run_goes_on(clock, caplog):
    site("[budgets.project.thesis]\nkwh = -1\n")
    with Tracker(epochs=1, meter=SimulatedMeter(clock, gpu_w=360.0), clock=clock, verbose=0) as tracker:
        tracker.epoch_start()
        clock.pass_s(10.0)
        tracker.epoch_end()
    assert tracker.summary.epochs_done == 1
    assert caplog.text.count("the budgets of the team are not checked") == 1


def test_what_cannot_be_read_is_said_beside_every_budget(tmp_path):
    logged(tmp_path / "logs")
    (tmp_path / "logs" / "newer").mkdir()
    (tmp_path / "logs" / "newer" / "run.csv").write_text("field,value,unit\nschema_version,99,\n")
    (use,) = used_in_month(tmp_path / "logs", [TeamBudget("user", "ada", "kwh", 1.0)], NOVEMBER)
    assert use.n_unreadable == 1 and "1 part of the logs could not be read, and may be of anybody" in use.sentence


def test_an_alert_that_could_not_be_sent_is_said_once_and_sent_by_whoever_comes_next(tmp_path, webhook):
    logs, (address, sent) = tmp_path / "logs", webhook
    logged(logs)
    uses = used_in_month(logs, [TeamBudget("user", "ada", "kwh", 1e-6)], NOVEMBER)
    warnings: list[str] = []
    told = [alert_once(uses, logs, warnings.append, "http://127.0.0.1:9/s3cret") for _ in range(2)]
    assert told == [uses, []] and [text.partition(":")[0] for text in warnings] == [
        "over budget",
        "the alert was not sent to the site's webhook at 127.0.0.1",
    ]
    for _ in range(2):
        assert alert_once(uses, logs, warnings.append, address) == []
    assert len(warnings) == 2 and len(sent) == 1 and "s3cret" not in "".join(warnings)


def test_simulated_runs_use_no_budget(tmp_path):
    write_run(tmp_path / "logs", gpu_rows(), fields={"project": "thesis", "meter": "simulated"})
    (use,) = used_in_month(tmp_path / "logs", [TeamBudget("project", "thesis", "kwh", 1e-9)], NOVEMBER)
    assert use.used == 0.0 and not use.is_exceeded
