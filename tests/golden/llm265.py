"""A video of cache entries by ffmpeg's libraries, for tests/methods/compression/llm265_test.cpp.

    pip install numpy av
    python tests/golden/llm265.py

Writes llm265.json: the bytes that the codec would store for entries that are draws of harness/core/random.h, written
by this script from the format that the method's page describes, and every fifth number that they say. How the paper
lays out and scales a cache is not published, so the format is the project's own; what is compared is the other way
round: encoded by ffmpeg with libx265 and decoded by ffmpeg's own decoder here, decoded by libde265 in the test. A
channel is stored as least + step * brightness, least and step in float16; a side as these pairs for every layer and
channel, the length of its stream, and the stream, one intra frame a layer, tokens down and channels across, whole
blocks of 16. Written for numpy 2.4, av 18.
"""

import json
import pathlib
from fractions import Fraction

import av
import numpy as np
from random_stream import uniform

LAYERS, TOKENS, CHANNELS, ROWS = 2, 21, 32, 32


def entries(side):
    """Smooth along tokens, [layers, tokens, channels]."""
    x = (2 * uniform(1, f"llm265 {side}", LAYERS * TOKENS * CHANNELS) - 1).reshape(LAYERS, TOKENS, CHANNELS)
    for token in range(1, TOKENS):
        x[:, token] = 0.9 * x[:, token - 1] + 0.1 * x[:, token]
    return x * np.arange(1, CHANNELS + 1)


def encoded(frames, qp):
    context = av.CodecContext.create("libx265", "w")
    context.width, context.height, context.pix_fmt, context.time_base = CHANNELS, ROWS, "yuv420p", Fraction(1)
    context.options = {"x265-params": f"qp={qp}:keyint=1:bframes=0:repeat-headers=1:info=0:ctu=16:pools=none:"
                                      "frame-threads=1:log-level=none:aq-mode=0:cutree=0"}
    packets = []
    for number, rows in enumerate(frames):
        frame = av.VideoFrame(CHANNELS, ROWS, "yuv420p")
        grey = np.full((ROWS // 2, CHANNELS // 2), 128, np.uint8)
        for plane, values in zip(frame.planes, (rows, grey, grey)):
            padded = np.zeros((values.shape[0], plane.line_size), np.uint8)
            padded[:, : values.shape[1]] = values
            plane.update(padded.tobytes())
        frame.pts = number
        packets += context.encode(frame)
    packets += context.encode(None)
    return b"".join(bytes(packet) for packet in packets)


def decoded(stream):
    context = av.CodecContext.create("hevc", "r")
    frames = [frame for packet in context.parse(stream) + context.parse(None) for frame in context.decode(packet)]
    frames += context.decode(None)
    return [np.frombuffer(bytes(frame.planes[0]), np.uint8).reshape(ROWS, frame.planes[0].line_size)[:, :CHANNELS]
            for frame in frames]


def main():
    cases = []
    for qp in (4, 30):
        stored, sides = b"", {}
        for side in ("keys", "values"):
            x = entries(side)
            least = x.min(1).astype(np.float16)
            step = ((x.max(1) - x.min(1)) / 255).astype(np.float16)
            brightness = np.clip(np.round((x - least.astype(float)[:, None]) / step.astype(float)[:, None]), 0, 255)
            frames = np.concatenate([brightness, np.repeat(brightness[:, -1:], ROWS - TOKENS, 1)], 1).astype(np.uint8)
            stream = encoded(frames, qp)
            back = np.stack(decoded(stream))[:, :TOKENS]
            assert back.shape == (LAYERS, TOKENS, CHANNELS)
            stored += np.stack([least, step], -1).tobytes() + len(stream).to_bytes(4, "little") + stream
            numbers = least.astype(float)[:, None] + step.astype(float)[:, None] * back
            sides[side] = [float(f"{v:.7g}") for v in numbers.ravel()[::5]]
        cases.append({"qp": qp, "bytes": stored.hex(), **sides})
    out = pathlib.Path(__file__).with_suffix(".json")
    out.write_text(json.dumps({"made_by": f"av {av.__version__}", "layers": LAYERS, "tokens": TOKENS, "channels": CHANNELS,
                               "cases": cases}, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
