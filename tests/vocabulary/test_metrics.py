import pytest

from greenlove_tracker.vocabulary.metrics import direction_of


@pytest.mark.parametrize(
    ("name", "larger"),
    [
        ("accuracy", True),
        ("val_acc", True),
        ("eval/F1", True),
        ("testAUC", True),
        ("BLEU", True),
        ("top-1", None),
        ("loss", False),
        ("Loss/train", False),
        ("valLoss", False),
        ("top5_error", False),
        ("accuracy_loss", False),
        ("perplexity", False),
        ("train-mlogloss", False),
        ("merror", False),
        ("learning_rate", None),
        ("glossary", None),
        ("", None),
    ],
)
def test_the_name_tells_which_is_better(name, larger):
    assert direction_of(name) is larger
