#!/usr/bin/env bash
# The table and the figure of docs/family.md: every station of the story on Multi30k, as many minutes of training each.
#
#   scripts/family.sh [MINUTES]     default 10; eleven models, so two hours (docs/family.md: 6)
#
# Runs that are finished stay as they are; one that was interrupted resumes.
set -euo pipefail
minutes=${1:-10}
runs=()

station() { # name, config, further arguments of `tmt train`
    runs+=("runs/family_$1")
    tmt train --config "$2" --set name="family_$1" --set training.max_minutes="$minutes" "${@:3}"
}

station gru_bottleneck family/multi30k_gru_bottleneck
station gru_dot family/multi30k_gru_dot
station lstm_additive family/multi30k_lstm_additive
station convolutional family/multi30k_convolutional
for positions in sinusoidal learned rotary relative relative_bias alibi none; do
    station "$positions" family/multi30k_transformer --set model.positions.type="$positions"
done

tmt compare "${runs[@]}" --beam-size 5 --by-length --length-edges 8,12,16,20,25 --figure out/family.svg --markdown
for run in "${runs[@]}"; do
    echo "$run: $(tmt bench decode --model "$run" --input data/multi30k/test_2016_flickr.en --beam 5 --json)"
done
