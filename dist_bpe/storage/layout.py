"""What lies where in a run folder: every name, once.

run/
  plan.json      what the table was planned with: inputs with size and time, options; outside the reproducible set
  lease/         whose run it is
  staging/       what is finished so far, while counting goes on
  report.json    what counting took and left out, with reasons
  counts/        manifest.json, part-00000-….parquet …
  vocabularies/  a folder a vocabulary: its files, manifest.json, report.json
  mixtures/      balanced.toml, balanced.json
"""

COUNTS = "counts"
LEASE = "lease"
MANIFEST = "manifest.json"
MIXTURES = "mixtures"
PLAN = "plan.json"
REPORT = "report.json"
STAGING = "staging"
VOCABULARIES = "vocabularies"
