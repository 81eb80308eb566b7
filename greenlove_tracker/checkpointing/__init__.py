"""Checkpoints that survive kills, the resume from them and its rehearsal; notices of the end of a job."""
