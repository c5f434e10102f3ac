"""A page as headless Chromium sees it: what it writes to the console, what it asks the network for, how it looks."""

import json
import pathlib
import shutil
import struct
import subprocess
import zlib

QUIET = ["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run", "--disable-sync",
         "--disable-background-networking", "--disable-component-update", "--disable-default-apps",
         "--disable-extensions", "--disable-dev-shm-usage", "--enable-logging=stderr", "--metrics-recording-only"]


def chromium():
    """Path of a Chromium, or None."""
    return next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


class Visit:
    """One look at a page, in a window of width x height pixels; `dark` asks for the dark scheme."""

    def __init__(self, page, folder, width=1280, height=2400, dark=False):
        folder = pathlib.Path(folder)
        self.picture = folder / f"{pathlib.Path(page).stem}-{width}{'-dark' if dark else ''}.png"
        net_log = folder / "net.json"
        command = [chromium(), *QUIET, f"--user-data-dir={folder / 'profile'}", f"--log-net-log={net_log}",
                   f"--window-size={width},{height}", f"--screenshot={self.picture}", "--virtual-time-budget=3000"]
        if dark:
            command += ["--blink-settings=preferredColorScheme=0", "--force-dark-mode"]
        run = subprocess.run([*command, pathlib.Path(page).as_uri()], capture_output=True, text=True, timeout=240)
        self.console = [line for line in run.stderr.splitlines() if "CONSOLE" in line]
        self.requests = self._requests(net_log)

    @staticmethod
    def _requests(net_log):
        """URLs that the page's own origin asked for over a network."""
        text = net_log.read_text()
        if not text.rstrip().endswith("}"):  # the browser ended before it closed the list
            text = text.rstrip().rstrip(",") + "]}"
        urls = set()
        for event in json.loads(text)["events"]:
            params = event.get("params", {})
            # A page opened from disk has an opaque origin; what the browser does for itself has none.
            if params.get("url", "").startswith(("http:", "https:")) and "null" in str(params.get("initiator", "")):
                urls.add(params["url"])
        return sorted(urls)

    def pixels(self):
        """(width, height, rows of RGB bytes) of the picture."""
        return read_png(self.picture)


def read_png(path):
    """An 8-bit RGB or RGBA PNG as (width, height, rows), each row a list of (r, g, b)."""
    data = pathlib.Path(path).read_bytes()
    at, packed = 8, b""
    while at < len(data):
        length, kind = struct.unpack(">I4s", data[at:at + 8])
        body = data[at + 8:at + 8 + length]
        if kind == b"IHDR":
            width, height, depth, colour = struct.unpack(">IIBB", body[:10])
            assert depth == 8 and colour in (2, 6), (depth, colour)
        elif kind == b"IDAT":
            packed += body
        at += 12 + length
    channels = 3 if colour == 2 else 4
    stride, raw, rows, before = width * channels, zlib.decompress(packed), [], bytes(width * channels)
    for y in range(height):
        kind, line = raw[y * (stride + 1)], bytearray(raw[y * (stride + 1) + 1:(y + 1) * (stride + 1)])
        unfilter(kind, line, before, channels)
        rows.append([tuple(line[x:x + 3]) for x in range(0, stride, channels)])
        before = line
    return width, height, rows


def unfilter(kind, line, before, channels):
    """Undoes one row's filter (PNG specification, section 9)."""
    for i in range(len(line)):
        left = line[i - channels] if i >= channels else 0
        up, corner = before[i], before[i - channels] if i >= channels else 0
        if kind == 1:
            line[i] = (line[i] + left) & 255
        elif kind == 2:
            line[i] = (line[i] + up) & 255
        elif kind == 3:
            line[i] = (line[i] + (left + up) // 2) & 255
        elif kind == 4:
            guess = left + up - corner
            nearest = min((abs(guess - left), 0, left), (abs(guess - up), 1, up), (abs(guess - corner), 2, corner))
            line[i] = (line[i] + nearest[2]) & 255
