#!/bin/bash
# One model from English to German and French: the scores of each direction, and of the wrong tag.
#
#   scripts/languages.sh DIR [UPDATES]
#
# DIR is a local copy of Multi30k with French. Run it in a folder that may get data/ and runs/.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
python=${PYTHON:-python}
copy=$1 updates=${2:-4000}
tmt() { "$python" -m transformer_mt "$@"; }
pairs() { echo "{type: text, src: data/multi30k/$1.en, tgt: data/multi30k/$1.$2, tgt_lang: $2}"; }

"$python" "$here/get_corpus.py" multi30k --from "$copy"
tmt train --config multi30k_en_de_fr --set name=en_de_fr --set data.test={} \
    --set "data.train=[$(pairs train de), $(pairs train fr)]" \
    --set "data.valid={type: joined, sources: [$(pairs val de), $(pairs val fr)]}" \
    --set training.max_steps="$updates" --set training.max_minutes=null \
    --set training.validation.every_steps="$updates" --set training.schedule.warmup_steps=150
test=data/multi30k/test_2016_flickr
for to in de fr; do
    for reference in de fr; do
        echo "tag $to, reference $reference:"
        tmt evaluate --model runs/en_de_fr --bleu --chrf --src $test.en --ref $test.$reference \
            --to $to --tgt-lang $reference
    done
done
