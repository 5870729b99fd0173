"""What lies where in a run folder: every name, once.

run/
  plan.json      what the table was planned with: inputs with size and time, options; outside the reproducible set
  lease/         whose run it is; below it, whose vocabulary or mixture of a name is being made
  staging/       what is finished so far, while counting goes on
  report.json    what counting took and left out, with reasons
  counts/        manifest.json, part-00000-….parquet …
  vocabularies/  a folder a vocabulary: its files, manifest.json, report.json
  mixtures/      balanced.toml, balanced.json
"""

from typing import Any

COUNTS = "counts"
LEASE = "lease"
MANIFEST = "manifest.json"
MIXTURES = "mixtures"
PLAN = "plan.json"
REPORT = "report.json"
STAGING = "staging"
VOCABULARIES = "vocabularies"


def claim(run: Any, *names: str) -> Any:
    """Where the lease of one vocabulary or mixture lies, below that of the run: `claim(run, VOCABULARIES, "32000")`."""
    place = run / LEASE
    for name in names:
        place /= name
    return place
