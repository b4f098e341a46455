#!/usr/bin/env bash
# The models of docs/documents.md: no context, sentences joined, segment memory; as many updates of as many tokens each.
#
#   scripts/documents.sh [NAME ..]     of none, joined_1, joined_3, memory_1, memory_3, on the help pages (the default), and
#                                      pronouns_none, pronouns_joined_3 .., on the generated documents alone: a minute each
#
# Runs that are finished stay as they are; one that was interrupted resumes. Then scripts/documents.py makes the tables.
set -euo pipefail
if [ $# -eq 0 ]; then set -- none joined_1 joined_3 memory_1 memory_3; fi
generated='[{type: text, src: data/documents/pronouns_train.en, tgt: data/documents/pronouns_train.de}]'

for name in "$@"; do
    settings=()
    case $name in
    *none) settings=(--set data.document=null) ;;
    *joined_*) settings=(--set data.document.memory=none --set data.document.context_sentences="${name##*_}") ;;
    *memory_*) settings=(--set data.document.context_sentences="${name##*_}") ;;
    esac
    case $name in
    pronouns_*) settings+=(--set data.train="$generated" --set tokenizer.vocab_size=800 --set training.max_steps=300) ;;
    esac
    tmt train --config help_documents --set name="documents_$name" "${settings[@]}"
done
