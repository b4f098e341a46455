#!/usr/bin/env bash
# The tables of docs/family.md: each station of the story on the same text, at the same number of updates.
#
#   scripts/family.sh [--corpus multi30k|demo] [--updates N] [--seeds 1,2,3] [--only STATION,..]
#
# `demo` needs no download: its text comes from the catalogs of scripts/demo_corpus.py. Each station is a recipe
# and what it changes in it, so what two stations differ in can be read here. All have about 0.9 million weights
# (docs/family.md), 2,000 pieces, and updates of 1,024 target tokens. Finished runs stay as they are; one that was
# interrupted resumes.
set -euo pipefail
corpus=multi30k updates=600 seeds=1 only=
while (($#)); do
    case $1 in
        --corpus) corpus=$2 ;;
        --updates) updates=$2 ;;
        --seeds) seeds=$2 ;;
        --only) only=$2 ;;
        *) sed -n '2,9s/^# \{0,1\}//p' "$0" && exit 2 ;;
    esac
    shift 2
done

common=(
    tokenizer.vocab_size=2000
    "training.max_steps=$updates" training.max_minutes=null training.schedule.warmup_steps=150
    "training.validation={every_steps: $updates, metrics: [], select_by: loss}"
    training.checkpoints.average=none
)
if [[ $corpus == demo ]]; then
    [[ -d data/demo ]] || "${PYTHON:-python}" "$(dirname "$0")/demo_corpus.py"
    pairs() { echo "{type: text, src: data/demo/$1.en, tgt: data/demo/$1.fr}"; }
    common+=(data.tgt_lang=fr "data.train=[$(pairs train)]" "data.valid=$(pairs valid)" "data.test={test: $(pairs test)}")
fi

names=() runs=()
station() { # name, recipe, what differs from it
    names+=("$1")
    [[ -z $only || ,$only, == *,$1,* ]] || return 0
    local seed settings
    for seed in ${seeds//,/ }; do
        runs+=("runs/family_${corpus}_${updates}_$1_$seed")
        settings=("name=family_${corpus}_${updates}_$1_$seed" "seed=$seed" "${common[@]}" "${@:3}")
        tmt train --config "$2" "${settings[@]/#/--set=}"
    done
}

recurrent="family/multi30k_gru_dot model.d_model=192 model.num_encoder_layers=1 model.num_decoder_layers=1 model.residual=false"
station rnn_none $recurrent model.cell=rnn model.attention=none
station rnn_additive $recurrent model.cell=rnn model.attention=additive
for attention in none dot scaled_dot general additive; do
    station gru_$attention $recurrent model.attention=$attention
done
station gru_none_one_direction $recurrent model.attention=none model.bidirectional=false
station gru_none_reversed $recurrent model.attention=none model.bidirectional=false model.reverse_source=true
station gru_additive_one_direction $recurrent model.attention=additive model.bidirectional=false
station lstm_none $recurrent model.cell=lstm model.attention=none
station lstm_additive $recurrent model.cell=lstm model.attention=additive
convolutions="model.num_encoder_layers=3 model.num_decoder_layers=3 model.positions.type=learned model.positions.max_length=256"
station convolutional family/multi30k_convolutional $convolutions
station dilated family/multi30k_dilated $convolutions
transformer="family/multi30k_transformer model.num_encoder_layers=2 model.num_decoder_layers=2"
station transformer $transformer
station transformer_rotary $transformer model.positions.type=rotary
decoder="family/multi30k_decoder_only model.num_decoder_layers=5"
station decoder_only $decoder
station decoder_only_both $decoder model.loss_on=both
station decoder_only_full_source $decoder model.source_mask=full
pattern=model.decoder_pattern # all that a target token knows of the source comes to it by the pattern
station pattern_local $decoder $pattern.type=local $pattern.window=8
station pattern_strided $decoder $pattern.type=strided $pattern.stride=8
for summary in 1 4; do
    station pattern_fixed_$summary $decoder $pattern.type=fixed $pattern.stride=8 $pattern.summary=$summary
done
# 32 layers, very narrow: what of a deep encoder learns at all (docs/patterns.md).
deep="$transformer model.num_encoder_layers=32 model.d_model=32 model.d_ff=64"
station deep_post $deep model.norm=post
station deep_pre $deep
station deep_pre_child2019 $deep model.init=child2019

((${#runs[@]})) || { echo "family.sh: no station $only; there are: ${names[*]}" >&2 && exit 2; }
tmt compare "${runs[@]}" --beam-size 5 --by-length --length-edges 8,12,16,20,25 --figure "out/family_$corpus.svg" --markdown
