"""The names and values of metrics: which of two values is the better one, and what is a number."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

# The last of these words in a name decides: an accuracy_loss is a loss. As they are usually minimised or maximised;
# of most others (learning_rate, grad_norm, entropy) neither can be said.
_LARGER_IS_BETTER_TEXT = (
    "acc accuracies accuracy ap ap50 auc auprc auroc bleu chrf dice f1 iou jaccard kappa map map50 mcc meteor miou mrr "
    "ndcg precision psnr r2 recall reward rouge rouge1 rouge2 rougel sacrebleu sensitivity specificity ssim top1 top5"
)
_SMALLER_IS_BETTER_TEXT = (
    "bpb bpc brier cer ece err error errors fid loss losses mae mape mse nll perplexity ppl rmse smape ter wer"
)
LARGER_IS_BETTER = frozenset(_LARGER_IS_BETTER_TEXT.split())
SMALLER_IS_BETTER = frozenset(_SMALLER_IS_BETTER_TEXT.split())
_LOSSES = ("loss", "error")  # logloss, mlogloss and merror of XGBoost, softmaxloss


def number_of(value: Any) -> float | None:
    """Return a number, NumPy's and torch's scalars and arrays of one element too; None where it is none.

    A tensor on a GPU is waited for (``.item()``): without, its value is not known, and it may be overwritten later.
    """
    if type(value) is float:
        return value
    try:
        number = value.item() if hasattr(value, "item") else value
        # float() would read a text
        if isinstance(number, str | bytes | bytearray):
            return None
        return float(number)
    except Exception:  # a foreign object's own conversion, and a number too large
        return None


@lru_cache(maxsize=1024)
def direction_of(name: str) -> bool | None:
    """Return True where larger values of a metric of this name are better, False where smaller; None: not known."""
    for word in reversed(words_of(name)):
        if word in LARGER_IS_BETTER:
            return True
        if word in SMALLER_IS_BETTER or word.endswith(_LOSSES):
            return False
    return None


def words_of(name: str) -> list[str]:
    """Return the words of a metric's name, in small letters."""
    split_camel_case = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", name)
    return re.findall(r"[a-z0-9]+", split_camel_case.lower())
