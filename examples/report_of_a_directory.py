"""Write one report of many runs: their totals, by project and by month, as a PDF and as a page of HTML.

``python examples/report_of_a_directory.py`` tracks three short runs of two projects, and writes ``report.pdf`` and
``report.html`` of all runs in ``greenlove_logs``. ``greenlove report -o report.pdf`` does the same.
"""

from sklearn.datasets import load_digits
from sklearn.linear_model import SGDClassifier

from greenlove_tracker import Tracker, aggregate, write_html, write_pdf

LOGS = "greenlove_logs"

digits = load_digits()
x, y = digits.data / 16, digits.target

for project, learning_rate in [("constant-rate", 0.01), ("constant-rate", 0.1), ("adaptive-rate", 0.1)]:
    schedule = project.removesuffix("-rate")
    classifier = SGDClassifier(learning_rate=schedule, eta0=learning_rate, random_state=0)
    with Tracker(epochs=20, project=project, country="DE", log_dir=LOGS, verbose=0) as tracker:
        for _ in range(20):
            tracker.epoch_start()
            classifier.partial_fit(x[:1440], y[:1440], classes=range(10))
            tracker.epoch_end()
            tracker.log_metric("accuracy", classifier.score(x[1440:], y[1440:]))

for (project,), totals in aggregate(LOGS).by("project").items():
    print(f"{project}: {totals.n_runs} runs, {totals.duration_s:.2f} s")

print("wrote", write_pdf(LOGS, "report.pdf"), "and", write_html(LOGS, "report.html"))
