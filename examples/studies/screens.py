"""Take pictures of what six commands show first: terminal, page, phone, dark, paper.

    python examples/studies/screens.py --docs docs/start/screens

Needs chromium, and of Python `pip install pillow pymupdf`. The commands take minutes.
"""

import argparse
import io
import os
import pty
import shutil
import subprocess
import tempfile
from pathlib import Path

_ASKED = "--workload sharegpt --llm gpt-oss-120b --slo ttft=1s,tpot=30ms"
COMMANDS = {
    "plan": f"plan {_ASKED} --rate 300 --gpu H100,H200,B200",
    "capacity": f"capacity {_ASKED} --gpu H100 --tp 1 --provider CoreWeave "
    "--max-gpus 4",
    "compare": f"compare {_ASKED} --rate 40 --gpu H100 --tp 1 --systems "
    "vllm-v1,sarathi,orca",
    "what-if": f"what-if {_ASKED} --rate 150,300,600 --gpu H100,H200,B200",
    "budget": "budget out/plan/plan.json --months 12 --growth 3%/month --commit "
    "reserved:12",
    "autoscale": "autoscale examples/autoscale_week.yaml --policies "
    "schedule,hpa,dynamo",
}
SIZES = ((100, 30), (80, 24))
"""Columns and lines of the terminals."""
_HEIGHT_PX = 1500
"""Height of a picture of pages. [px]"""


def terminal(command: str, columns: int) -> str:
    """Return what a command writes to a terminal, with its colours."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "COLUMNS": str(columns), "TERM": "xterm-256color"}
    with subprocess.Popen(
        command.split(),
        stdout=theirs,
        stderr=subprocess.DEVNULL,
        env=environment,
    ) as running:
        os.close(theirs)
        parts = []
        try:
            while part := os.read(ours, 4096):
                parts.append(part)
        except OSError:  # the other end is closed
            pass
    assert running.returncode == 0, command
    return b"".join(parts).decode().replace("\r\n", "\n")


def draw_terminal(command: str, text: str, size: tuple[int, int], path: Path) -> None:
    """Draw a terminal; refuse a text that does not fit it with its prompt."""
    from rich.console import Console
    from rich.text import Text

    columns, rows = size
    assert text.count("\n") < rows, f"{command}: {text.count(chr(10))} lines"
    out = Console(record=True, width=columns, file=io.StringIO())
    out.print(Text.from_ansi(text))
    path.write_text(out.export_svg(title=f"capplan {command.split()[0]}"))


def draw_pages(report: Path, path: Path) -> None:
    """Draw a report beside itself: wide, dark, on a phone and on paper."""
    import pymupdf
    from PIL import Image

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shutil.copy(report, folder / "report.html")
        (folder / "phone.html").write_text(
            '<body style="margin:0"><iframe src="report.html" style="border:0;'
            'width:390px;height:2300px"></iframe>'
        )
        dark = report.read_text().replace("and (prefers-color-scheme: dark)", "")
        (folder / "dark.html").write_text(dark)
        shots = {}
        for shot, page, wide in (
            ("wide", "report.html", 1280),
            ("dark", "dark.html", 1280),
            ("phone", "phone.html", 500),
        ):
            to = folder / f"{shot}.png"
            _chromium(folder, f"--window-size={wide},2300", f"--screenshot={to}", page)
            shots[shot] = Image.open(to).convert("RGB")
        shots["phone"] = shots["phone"].crop((0, 0, 390, 2300))
        printed = f"--print-to-pdf={folder / 'p.pdf'}"
        _chromium(folder, "--no-pdf-header-footer", printed, "report.html")
        for number, sheet in enumerate(pymupdf.open(folder / "p.pdf")):
            drawn = sheet.get_pixmap(dpi=110)
            image = Image.frombytes("RGB", (drawn.width, drawn.height), drawn.samples)
            shots[f"sheet {number + 1}"] = image
        scaled = [
            each.resize((each.width * _HEIGHT_PX // each.height, _HEIGHT_PX))
            for each in shots.values()
        ]
        whole = Image.new(
            "RGB", (sum(x.width + 20 for x in scaled), _HEIGHT_PX), "#888"
        )
        left = 0
        for each in scaled:
            whole.paste(each, (left, 0))
            left += each.width + 20
        whole.quantize(48).save(path, optimize=True)


def _chromium(folder: Path, *arguments: str) -> None:
    *flags, page = arguments
    command = ["chromium", "--headless", "--no-sandbox", "--disable-gpu"]
    command += ["--hide-scrollbars", "--allow-file-access-from-files", *flags]
    command.append(f"file://{folder / page}")
    subprocess.run(command, check=True, timeout=120, stderr=subprocess.DEVNULL)


def main() -> None:
    """Run the commands, and write their pictures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--docs", type=Path, required=True)
    docs: Path = parser.parse_args().docs
    docs.mkdir(parents=True, exist_ok=True)
    for name, command in COMMANDS.items():
        for size in SIZES:
            text = terminal(f"capplan {command} --out out/{name}", size[0])
            draw_terminal(command, text, size, docs / f"{name}_{size[0]}.svg")
        draw_pages(Path("out", name, "report.html"), docs / f"{name}.png")


if __name__ == "__main__":
    main()
