#!/usr/bin/env bash
# Add a language to a kept count table, and learn from both: nothing that was counted before is read again.
#
#   jobs/one-more-language.sh KEPT_RUN NEW_LANGUAGE PATHS NEW_RUN [OPTIONS OF COUNT…]
#
# Pattern and special tokens must be those of the kept table; adding refuses others by name.
set -euo pipefail
kept=${1:?} language=${2:?} paths=${3:?} run=${4:?}
pattern=$(python -c 'import sys, dist_bpe; print(dist_bpe.CountTable.open(sys.argv[1]).pattern)' "$kept")
dist-bpe count "$language=$paths" --pattern "$pattern" -o "$run.$language" "${@:5}"
dist-bpe add "$kept" "$run.$language" -o "$run"
dist-bpe learn "$run" --vocab-size 128000 --alpha 0.3
