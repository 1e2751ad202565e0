"""The Colab notebook with the project inside: `make colab`, `make colab DEVICE=tpu`.

Writes build/colab.ipynb (or build/colab-tpu.ipynb): `experiments/colab.ipynb` with the
tracked files of this checkout as text, to be uploaded as it is, asking for that device.
"""

import base64
import io
import json
import subprocess
import sys
import tarfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
DEVICES = {
    "cpu": {},
    "gpu": {"accelerator": "GPU", "colab": {"gpuType": "T4"}},
    "tpu": {"accelerator": "TPU", "colab": {"gpuType": "V5E1"}},
}
"""What a notebook's metadata says of the runtime that it wants."""


def packed() -> str:
    """The tracked files but tests, documents and pictures: an archive, as text."""
    listed = subprocess.check_output(["git", "ls-files", "-z"], cwd=ROOT, text=True)
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:xz") as archive:
        for name in filter(None, listed.split("\0")):
            if not (name.startswith(("tests/", "docs/")) or name.endswith(".png")):
                archive.add(ROOT / name, name)
    return base64.b64encode(buffer.getvalue()).decode()


def notebook(device: str) -> dict:
    """The notebook for a device."""
    found = json.loads((ROOT / "experiments" / "colab.ipynb").read_text())
    found["metadata"] |= DEVICES[device]
    (cell,) = (one for one in found["cells"] if 'PROJECT = ""\n' in one["source"])
    place = cell["source"].index('PROJECT = ""\n')
    cell["source"][place] = f'PROJECT = "{packed()}"\n'
    return found


if __name__ == "__main__":
    device = sys.argv[1] if len(sys.argv) > 1 else "cpu"
    if device not in DEVICES:
        sys.exit(f"no device {device!r}: wanted one of {', '.join(DEVICES)}")
    name = "colab" if device == "cpu" else f"colab-{device}"
    path = ROOT / "build" / f"{name}.ipynb"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(notebook(device), indent=1, ensure_ascii=False) + "\n")
    print(path)
