from greenlove_tracker.logs.metrics import summarise_metrics
from greenlove_tracker.logs.tables import MetricRecord


def test_of_several_ranks_the_first_that_logged_a_metric_stands_for_it():
    def record(name: str, value: float) -> MetricRecord:
        return MetricRecord("", 1, 0, name, value)

    metrics = summarise_metrics({2: [record("loss", 9.0), record("rank 2's", 1.0)], 0: [record("loss", 0.5)]})
    assert {m.name: m.last for m in metrics} == {"rank 2's": 1.0, "loss": 0.5}
