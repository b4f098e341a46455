#!/bin/sh
# The figures of docs/pictures.md: trains a recipe and scores it. Run it where data/multi30k and
# data/demo are (scripts/get_corpus.py multi30k, scripts/demo_corpus.py).
#
#   scripts/pictures.sh visual_translation [UPDATES] [UPDATES BETWEEN VALIDATIONS]
#   scripts/pictures.sh multi30k_tiny ..              its twin that reads subwords
#   scripts/pictures.sh read_lines ..
set -eu
tmt="${TMT:-tmt}" recipe="$1" updates="${2:-1000}" every="${3:-500}"

$tmt train --config "$recipe" --set training.max_steps="$updates" --set training.max_minutes=null \
    --set training.validation.every_steps="$every"
if [ "$recipe" = read_lines ]; then
    $tmt evaluate --model runs/read_lines --cer --exact --confidence
    exit
fi
test=data/multi30k/test_2016_flickr
python3 "$(dirname "$0")/noisy_text.py" "$test.en" "runs/$recipe/noisy"
for text in "$test.en" "runs/$recipe/noisy.typos" "runs/$recipe/noisy.look_alikes"; do
    $tmt evaluate --model "runs/$recipe" --src "$text" --ref "$test.de" --bleu --chrf --confidence
done
