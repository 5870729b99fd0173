"""Train production BPE vocabularies on whole corpora: exact, reproducible, at the speed of reading."""
