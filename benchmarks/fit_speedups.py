"""Fit the model of GPU speed to all measured speeds, write what the package ships of it, and score it by leaving out.

    python benchmarks/fit_speedups.py --tables DIR [--into-data greenlove_tracker/data] [--check]

The model is in ``speedup_fit.py``, its shipped form in ``speedup_export.py``, the scores in ``speedup_scores.py``.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from scoring import told
from speedup_export import NUISANCE, exported, write
from speedup_fit import Data, fitted_variances, posterior
from speedup_scores import report
from speedup_tables import observations

BEGIN, END = "<!-- speedup model begin -->", "<!-- speedup model end -->"
FITTED_ON = "2026-11-29"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tables", type=Path, required=True, help="the directory of the measured speeds")
    parser.add_argument("--into-data", type=Path, help="the directory that the shipped tables are written to")
    parser.add_argument("--check", action="store_true", help="score the model by leaving out; minutes")
    parser.add_argument("--cache", type=Path, help="a directory for the variances without each fold, to score again")
    parser.add_argument("--into", type=Path, help="a page whose lines between the two marks are replaced")
    arguments = parser.parse_args()
    rows = observations(arguments.tables)
    data = Data(rows)
    variances = fitted_variances(data)
    for kind, variance in variances.items():
        print(f"{kind:28} {variance**0.5:.3f}")
    if arguments.into_data:
        write(*exported(posterior(data, variances, but=NUISANCE), rows), arguments.into_data, FITTED_ON)
    if arguments.check:
        told(report(rows, variances, arguments.cache), arguments.into, BEGIN, END)


if __name__ == "__main__":
    main()
