#!/bin/bash
# One model of three languages: the scores of each direction, and what a wrong tag gives.
#
#   scripts/languages.sh DIR [MINUTES]
#
# DIR is a local copy of Multi30k with French. Run it in a folder that may get data/ and runs/.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
python=${PYTHON:-python}
copy=$1 minutes=${2:-40}
tmt() { "$python" -m transformer_mt "$@"; }

"$python" "$here/get_corpus.py" multi30k --from "$copy"
tmt train --config multi30k_en_de_fr --set "training.max_minutes=$minutes"
model=runs/multi30k_en_de_fr
test=data/multi30k/test_2016_flickr
tmt evaluate --model "$model" --bleu --chrf
for to in de fr en; do
    for reference in de fr; do
        echo "from en, tag $to, reference $reference:"
        tmt evaluate --model "$model" --bleu --src "$test.en" --ref "$test.$reference" --to "$to" \
            --tgt-lang "$reference"
    done
done
