"""Checkpoints that survive kills, and resumes that go on bit for bit; notices of the end of a machine or a job."""
