"""Records of every kind of answer, kept so that a redesign cannot move a number unnoticed.

python -m tests.golden            compare what the package gives now with what is stored, to the bit
python -m tests.golden --write    store what it gives now; the commit says what changed, and why
"""
