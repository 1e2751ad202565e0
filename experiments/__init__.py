"""Programs, one per study; each has --help. `python -m experiments` lists them.

Settings that must precede the import of NumPy and JAX are made here.
"""

import atexit
import gc
import os

for _name, _value in {
    # OpenBLAS with many threads makes small factorisations a hundred times
    # slower.
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
}.items():
    os.environ.setdefault(_name, _value)

# Imported and traced objects stay: at Python's own pace the search for garbage in it
# takes a seventh of a short program's time.
gc.set_threshold(50_000, 20, 50)
# No search once the program is done: that takes a short one half a second.
atexit.register(gc.freeze)
