"""Write one report of many runs: their totals, the same by project and month, and the runs that took most.

``python examples/report_of_a_directory.py`` tracks three short runs of two projects, and writes ``report.pdf`` and
``report.html`` of all runs in ``greenlove_logs``. ``greenlove report -o report.pdf`` writes the same of any directory.
"""

from sklearn.datasets import load_digits
from sklearn.linear_model import SGDClassifier

from greenlove_tracker import Tracker, aggregate, write_html, write_pdf

LOGS = "greenlove_logs"
RUNS = [("logistic-regression", "log_loss", 1e-4), ("logistic-regression", "log_loss", 1e-2), ("svm", "hinge", 1e-4)]

digits = load_digits()
x, y = digits.data / 16, digits.target

for project, loss, alpha in RUNS:
    classifier = SGDClassifier(loss=loss, alpha=alpha, random_state=0)
    with Tracker(epochs=20, project=project, country="DE", log_dir=LOGS, verbose=0) as tracker:
        for _ in range(20):
            tracker.epoch_start()
            classifier.partial_fit(x[:1440], y[:1440], classes=range(10))
            tracker.epoch_end()
            tracker.log_metric("accuracy", classifier.score(x[1440:], y[1440:]))

for (project,), totals in aggregate(LOGS).by("project").items():
    print(f"{project}: runs {totals.n_runs}, time {totals.duration_s:.2f} s")

print("wrote", write_pdf(LOGS, "report.pdf"))
print("wrote", write_html(LOGS, "report.html"))
