#!/bin/sh
# Run a training on a spot machine, and send it SIGTERM once the cloud says that the machine is about to end:
#     sh examples/spot_notice.sh aws python train.py        (or gcp, azure)
# Needs curl. A Checkpointer saves at SIGTERM; "greenlove run" closes its log.
# AWS: https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/spot-instance-termination-notices.html
# Google: https://cloud.google.com/compute/docs/instances/preemptible
# Azure: https://learn.microsoft.com/azure/virtual-machines/linux/scheduled-events; in a scale set each machine hears of
# the others' end, too.
url=${METADATA_URL:-http://169.254.169.254} cloud=$1
case $cloud in aws | gcp | azure) shift ;; *) echo "spot_notice.sh: aws, gcp and azure are known, not '$cloud'" >&2 && exit 2 ;; esac

asked() { curl --silent --fail --noproxy '*' --max-time 2 "$@"; }

is_ending() {
    case $cloud in
    aws)
        token=$(asked -X PUT -H 'X-aws-ec2-metadata-token-ttl-seconds: 60' "$url/latest/api/token") &&
            asked -H "X-aws-ec2-metadata-token: $token" "$url/latest/meta-data/spot/instance-action" | grep -q '"action"'
        ;;
    gcp) asked -H 'Metadata-Flavor: Google' "$url/computeMetadata/v1/instance/preempted" | grep -q TRUE ;;
    azure) asked -H 'Metadata: true' "$url/metadata/scheduledevents?api-version=2020-07-01" | grep -q '"Preempt"' ;;
    esac
}

# $$ is this shell, whose place the training takes.
while kill -0 $$ 2>/dev/null; do
    is_ending && kill -TERM $$ && break
    sleep "${EVERY_S:-5}"
done >/dev/null &
exec "$@"
