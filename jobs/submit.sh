#!/usr/bin/env bash
# Submit a run to a Ray cluster, from any machine that reaches its dashboard; the wheel and the configuration travel along.
#
#   RAY_ADDRESS=http://head:8265 jobs/submit.sh run.toml [dist_bpe.whl] [NAME]
#
# Without a wheel the package must be installed on every node. With token authentication RAY_AUTH_TOKEN is sent. Progress
# is shown until the job ends; ending this script does not stop the job (`ray job stop NAME` does, and submitting again
# under another NAME goes on where it was). Needed here and on the cluster: ray[default], of one version.
set -euo pipefail
config=${1:?"usage: $0 run.toml [dist_bpe.whl] [NAME]"}
wheel=${2:-}
name=${3:-dist-bpe-$(basename "$config" .toml)-$(date +%Y%m%d-%H%M%S)}
: "${RAY_ADDRESS:?"set RAY_ADDRESS to the dashboard, such as http://head:8265"}"

# Only these two files are sent, not the folder they lie in.
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cp "$config" "$folder/run.toml"
install=
if [ -n "$wheel" ]; then
  cp "$wheel" "$folder"
  # Beside what the nodes have: only what is missing there is fetched. (With py_modules every dependency is fetched anew,
  # Ray itself too, and comes before the one of the node.)
  install=$(printf '"pip": ["${RAY_RUNTIME_ENV_CREATE_WORKING_DIR}/%s[remote,verify]"], ' "$(basename "$wheel")")
fi
environment="{$install\"env_vars\": {\"RAY_USAGE_STATS_ENABLED\": \"0\"}}"
ray job submit --submission-id "$name" --working-dir "$folder" --runtime-env-json "$environment" \
  -- python -m dist_bpe train run.toml
