"""From any log to what an algorithm learns from. Knows nothing of algorithms.

Readers and `build` make a `Dataset` of episodes; the doctor checks it; `preprocess` changes it as declared;
`transitions` and `store` hand it to training, in memory or from disk; writers save it.
"""
