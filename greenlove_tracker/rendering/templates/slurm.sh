#!/bin/sh
{% set system = "Slurm" %}
{% include "job_head.txt" %}
# Submit: sh FILE [more options of sbatch, such as --gpus=1]
# When planned, that was sbatch --begin=now+{{ wait_s }}seconds; submitted later, it waits less.
{% if minutes is not none %}
# Slurm ends it after {{ minutes }} minutes, the longest expected: --time=… after FILE is more.
{% endif %}
{# An absolute time would be read in the time zone of the controller. The shell becomes the command: signals reach it. #}
wait_s=$(({{ start_s }} - $(date +%s)))
begin=now
[ "$wait_s" -le 0 ] || begin="now+${wait_s}seconds"
sbatch --begin="$begin" --job-name=greenlove{% if minutes is not none %} --time={{ minutes }}{% endif %} "$@" --wrap={{ line }}
