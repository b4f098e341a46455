"""A config without mistakes, for tests that put one in."""

GOOD = """\
name: good
data:
  src_lang: no
  tgt_lang: en
  train:
    - {type: text, src: train.no, tgt: train.en}
    - type: reverse
      num_pairs: 10
  valid: {type: text, src: valid.no, tgt: valid.en}
training:
  max_steps: 100
"""
