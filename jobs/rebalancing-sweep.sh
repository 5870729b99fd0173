#!/usr/bin/env bash
# What evenness between languages costs: several mixtures from one kept table, measured on one parallel set.
#
#   jobs/rebalancing-sweep.sh RUN PARALLEL.parquet [SIZE]
#
# PARALLEL has the columns lang, doc, text. Half of it finds the balanced weights, the other half measures all.
set -euo pipefail
run=${1:?} parallel=${2:?} size=${3:-32000}
dist-bpe split "$parallel" -o "$run/sets"
for alpha in 1 0.7 0.5 0.3 0; do
  dist-bpe learn "$run" --vocab-size "$size" --alpha "$alpha" --name "alpha-$alpha"
done
dist-bpe learn "$run" --vocab-size "$size" --unimax 4 --name unimax-4
dist-bpe balance "$run" --vocab-size "$size" --dev "$run/sets/dev.parquet" --test "$run/sets/test.parquet" --frontier
dist-bpe learn "$run" --vocab-size "$size" --mixture "$run/mixtures/balanced.toml" --name balanced
dist-bpe compare "$run"/vocabularies/{alpha-1,alpha-0.7,alpha-0.5,alpha-0.3,alpha-0,unimax-4,balanced} \
  --parallel "$run/sets/test.parquet"
