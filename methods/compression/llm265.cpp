#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "harness/method/stream_bytes.h"
#include "harness/method/stream_codec.h"
#include "kernels/common/dtype.h"

#ifdef KVARENA_VIDEO
#include <libde265/de265.h>
#include <x265.h>
#endif

namespace kvarena {
namespace {

constexpr int64_t kMostTokens = 4096;  // of a frame

#ifdef KVARENA_VIDEO

constexpr int64_t kBlock = 16;     // of a side: frames are whole coding tree units
constexpr float kBrightest = 255;  // of 8 bits

/// Frames of one size, one brightness a number, rows front to back.
struct Video {
  int64_t width = 0;
  int64_t height = 0;
  std::vector<std::vector<uint8_t>> frames;
};

[[noreturn]] void library_failed(const char* what) {
  fail({.place = "llm265", .found = fmt::format("{} failed", what), .expected = "a working video library"});
}

/// H.265, every frame by itself at one quantisation parameter, in one thread: the same bytes again.
std::vector<uint8_t> compress(const Video& video, int64_t qp) {
  const std::unique_ptr<x265_param, decltype(&x265_param_free)> settings(x265_param_alloc(), x265_param_free);
  if (settings == nullptr || x265_param_default_preset(settings.get(), "medium", nullptr) != 0) {
    library_failed("x265's preset");
  }
  settings->sourceWidth = static_cast<int>(video.width);
  settings->sourceHeight = static_cast<int>(video.height);
  settings->internalCsp = X265_CSP_I420;
  settings->fpsNum = 1;
  settings->fpsDenom = 1;
  settings->logLevel = X265_LOG_NONE;
  settings->bRepeatHeaders = 1;
  const std::string quality = std::to_string(qp);
  const std::pair<const char*, const char*> choices[] = {
      {"pools", "none"}, {"frame-threads", "1"}, {"wpp", "0"},     {"ctu", "16"},           {"keyint", "1"},
      {"bframes", "0"},  {"info", "0"},          {"aq-mode", "0"}, {"qp", quality.c_str()}, {"cutree", "0"}};
  for (const auto& [name, value] : choices) {
    if (x265_param_parse(settings.get(), name, value) != 0) library_failed(name);
  }
  const std::unique_ptr<x265_encoder, decltype(&x265_encoder_close)> encoder(x265_encoder_open(settings.get()),
                                                                             x265_encoder_close);
  if (encoder == nullptr) library_failed("opening x265");

  std::vector<uint8_t> grey(static_cast<size_t>(video.width * video.height / 4), 128);  // no colours
  std::vector<uint8_t> bytes;
  const auto encode = [&](x265_picture* picture) {
    x265_nal* units = nullptr;
    uint32_t count = 0;
    const int done = x265_encoder_encode(encoder.get(), &units, &count, picture, nullptr);
    if (done < 0) library_failed("encoding a frame");
    for (uint32_t i = 0; i < count; ++i) {
      bytes.insert(bytes.end(), units[i].payload, units[i].payload + units[i].sizeBytes);
    }
    return done;
  };
  for (size_t i = 0; i < video.frames.size(); ++i) {
    x265_picture picture;
    x265_picture_init(settings.get(), &picture);
    picture.planes[0] = const_cast<uint8_t*>(video.frames[i].data());
    picture.planes[1] = picture.planes[2] = grey.data();
    picture.stride[0] = static_cast<int>(video.width);
    picture.stride[1] = picture.stride[2] = static_cast<int>(video.width / 2);
    picture.pts = static_cast<int64_t>(i);
    (void)encode(&picture);
  }
  while (encode(nullptr) > 0) {
  }
  return bytes;
}

/// Fills the frames of a video whose sizes are set.
void decompress(std::span<const uint8_t> bytes, Video& video, const ByteReader& in) {
  const std::unique_ptr<de265_decoder_context, decltype(&de265_free_decoder)> decoder(de265_new_decoder(),
                                                                                      de265_free_decoder);
  if (decoder == nullptr) library_failed("opening libde265");
  if (de265_push_data(decoder.get(), bytes.data(), static_cast<int>(bytes.size()), 0, nullptr) != DE265_OK ||
      de265_flush_data(decoder.get()) != DE265_OK) {
    library_failed("reading into libde265");
  }
  size_t next = 0;
  for (int more = 1; more != 0;) {
    more = 0;
    const de265_error error = de265_decode(decoder.get(), &more);
    if (error != DE265_OK) in.wrong(de265_get_error_text(error), "frames of H.265");
    while (const de265_image* image = de265_get_next_picture(decoder.get())) {
      int stride = 0;
      const uint8_t* rows = de265_get_image_plane(image, 0, &stride);
      const bool fits = next < video.frames.size() && rows != nullptr && de265_get_bits_per_pixel(image, 0) == 8 &&
                        de265_get_image_width(image, 0) == video.width &&
                        de265_get_image_height(image, 0) == video.height;
      if (!fits)
        in.wrong("another frame", fmt::format("{} of {} x {}", video.frames.size(), video.width, video.height));
      std::vector<uint8_t>& frame = video.frames[next++];
      frame.resize(static_cast<size_t>(video.width * video.height));
      for (int64_t y = 0; y < video.height; ++y) {
        std::copy_n(rows + y * stride, video.width, &frame[static_cast<size_t>(y * video.width)]);
      }
    }
  }
  if (next != video.frames.size()) in.wrong(fmt::format("{} frames", next), fmt::format("{}", video.frames.size()));
}

int64_t whole_blocks(int64_t n) { return (n + kBlock - 1) / kBlock * kBlock; }

class VideoCoder final : public StreamCoder {
 public:
  explicit VideoCoder(int64_t qp) : qp_(qp) {}

  std::vector<uint8_t> encode(const KvChunk& chunk) const override {
    ByteWriter out;
    for (const bool key : {true, false}) {
      Video video{.width = chunk.channels, .height = whole_blocks(chunk.tokens), .frames = {}};
      for (int64_t layer = 0; layer < chunk.layers; ++layer) video.frames.push_back(frame_of(out, chunk, layer, key));
      const std::vector<uint8_t> bytes = compress(video, qp_);
      out.u32(static_cast<int64_t>(bytes.size()));
      out.append(bytes);
    }
    return std::move(out.bytes);
  }

  void decode(std::span<const uint8_t> bytes, KvChunk& chunk) const override {
    ByteReader in(bytes, "llm265");
    for (const bool key : {true, false}) {
      std::vector<Range> ranges;
      for (int64_t i = 0; i < chunk.layers * chunk.channels; ++i) {
        Range range{in.u16(), in.u16()};
        if ((range.least & 0x7c00U) == 0x7c00U || (range.step & 0x7c00U) == 0x7c00U) {
          in.wrong("a channel's range that is not finite", "numbers");
        }
        ranges.push_back(range);
      }
      Video video{.width = chunk.channels, .height = whole_blocks(chunk.tokens), .frames = {}};
      video.frames.resize(static_cast<size_t>(chunk.layers));
      decompress(in.take(in.u32()), video, in);
      for (int64_t layer = 0; layer < chunk.layers; ++layer) {
        for (int64_t t = 0; t < chunk.tokens; ++t) {
          float* x = chunk.row(key, layer, t);
          for (int64_t c = 0; c < chunk.channels; ++c) {
            const Range& range = ranges[static_cast<size_t>(layer * chunk.channels + c)];
            const auto brightness = static_cast<float>(video.frames[layer][t * chunk.channels + c]);
            x[c] = kernels::f16_to_f32(range.least) + kernels::f16_to_f32(range.step) * brightness;
          }
        }
      }
    }
    in.expect_end();
  }

  int64_t least_bytes(const KvChunk& sizes) const override {
    if (sizes.tokens > kMostTokens) {
      fail({.place = "llm265 stream",
            .found = fmt::format("{} tokens", sizes.tokens),
            .expected = fmt::format("at most {} a frame", kMostTokens)});
    }
    return 2 * (4 * sizes.layers * sizes.channels + 4);  // a range a channel, and a length
  }

 private:
  /// A channel of a frame: number = least + step * brightness, both f16.
  struct Range {
    uint16_t least = 0, step = 0;
  };

  /// Tokens down, channels across, each channel stretched over all brightnesses; the last token fills up the blocks.
  static std::vector<uint8_t> frame_of(ByteWriter& out, const KvChunk& chunk, int64_t layer, bool key) {
    std::vector<uint8_t> frame(static_cast<size_t>(whole_blocks(chunk.tokens) * chunk.channels));
    for (int64_t c = 0; c < chunk.channels; ++c) {
      float least = chunk.row(key, layer, 0)[c];
      float most = least;
      for (int64_t t = 1; t < chunk.tokens; ++t) {
        least = std::min(least, chunk.row(key, layer, t)[c]);
        most = std::max(most, chunk.row(key, layer, t)[c]);
      }
      const Range range{kernels::f32_to_f16(std::clamp(least, -65504.0F, 65504.0F)),
                        kernels::f32_to_f16(std::min((most - least) / kBrightest, 65504.0F))};
      out.u16(range.least);
      out.u16(range.step);
      const float from = kernels::f16_to_f32(range.least);
      const float step = range.step == 0 ? 1.0F : kernels::f16_to_f32(range.step);
      for (int64_t row = 0; row < whole_blocks(chunk.tokens); ++row) {
        const float x = chunk.row(key, layer, std::min(row, chunk.tokens - 1))[c];
        frame[static_cast<size_t>(row * chunk.channels + c)] =
            static_cast<uint8_t>(std::clamp(std::nearbyint((x - from) / step), 0.0F, kBrightest));
      }
    }
    return frame;
  }

  int64_t qp_;
};

#endif

/// Caches as video.  A layer's keys of a chunk are one frame of 8-bit brightness, tokens down and channels across; so
/// are its values, and the layers follow each other in two H.265 streams (libx265; libde265 reads them back). Every
/// channel of a frame is stretched over the brightnesses by its own minimum and step (f16, 32 bits a channel and
/// chunk). Frames are coded by themselves (intra prediction, transform, quantisation at `qp`, arithmetic coding),
/// without colours. The paper maps tensors to 8-bit frames and sends them through hardware coders by intra coding and
/// rate control; how it lays out and scales a KV cache is not published: both are this project's choice, and `qp` its
/// one knob of rate. Xu et al. 2025, LLM.265, MICRO 2025, doi 10.1145/3725843.3756078.
class Llm265 final : public StreamCodec {
 public:
  void parameters(ParameterVisitor& p) override {
    p("qp", qp_).min(0).max(51).doc("quantisation parameter of H.265: six more double the step");
    p("chunk", chunk_).min(1).max(kMostTokens).doc("tokens of a frame");
  }
  int64_t chunk_tokens() const override { return chunk_; }
  std::unique_ptr<StreamCoder> coder(const ModelFacts* /*model*/) const override {
#ifdef KVARENA_VIDEO
    return std::make_unique<VideoCoder>(qp_);
#else
    fail({.place = "llm265",
          .found = "a build without libx265 and libde265",
          .expected = "both video libraries",
          .action = "install libx265-dev and libde265-dev, then configure and build again"});
#endif
  }

 private:
  int64_t qp_ = 22;
  int64_t chunk_ = 256;
};

KVARENA_STREAM(Llm265, {.name = "llm265",
                        .title = "LLM.265",
                        .summary = "Stores the cache as H.265 video; needs libx265 and libde265.",
                        .paper = "doi 10.1145/3725843.3756078"});

}  // namespace
}  // namespace kvarena
