#pragma once
// Messages between ranks: orders of the driver, and the introduction of a rank.

#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "harness/model/ranks/channel.h"
#include "harness/model/weights.h"

namespace kvarena {

/// A set of weights that is computed, or read, in shares.
using Part = std::variant<Projection*, HeadProjections*, DenseFeedForward*>;

/// All parts of a model, in an order that its ranks have in common: a part is identified by its index. Valid as long as
/// the weights stay where they are.
[[nodiscard]] std::vector<Part> parts_of(ModelWeights& weights);

/// The driver's order to another rank. Its input follows: for a product the rows that the rank needs, for `read` the
/// numbers of stored rows, for `device_products` so many DeviceTasks. An answer is [rows, outputs of the rank]; of rows
/// that are read, those that it holds.
struct Order {
  enum class Work : int64_t { stop, product, read, connect_devices, device_products };
  Work work = Work::stop;
  int64_t part = 0;
  int64_t rows = 0;
};

/// A task of the devices beside ranks: parts are numbered separately there, and rows do not travel with orders.
struct DeviceTask {
  int32_t part = 0;
  int32_t rows = 0;

  [[nodiscard]] bool operator==(const DeviceTask&) const = default;
};
inline constexpr int64_t kTaskFloats = sizeof(DeviceTask) / sizeof(float);

/// Floats of the input that rank `to` gets.
[[nodiscard]] int64_t input_floats(std::span<const Part> parts, const Order& order, const Share& to);
/// Floats that the message of every order has: the order, and room for the largest input of one row, so that a
/// decoding step sends one message. A larger input is a message of its own.
[[nodiscard]] int64_t order_floats(std::span<const Part> parts, int64_t ranks);
inline constexpr int64_t kOrderHead = sizeof(Order) / sizeof(float);

/// A rank's description of itself when all have met; the driver compares it with its own.
struct Introduction {
  int64_t version = 2;  // version of these messages
  int64_t rank = 0;
  int64_t ranks = 0;
  int64_t parts = 0;
  int64_t whole_bytes = 0;  // bytes of all ranks' matrices
  int64_t held_bytes = 0;   // bytes of this rank's matrices
  char fingerprint[64] = {};
};

[[nodiscard]] Introduction introduce(const Share& share, ModelWeights& weights, const std::string& fingerprint);

/// An Order or Introduction at the head of a message.
template <class T>
[[nodiscard]] T read_head(std::span<const float> message) {
  T head;
  std::memcpy(static_cast<void*>(&head), message.data(), sizeof head);
  return head;
}
template <class T>
void write_head(const T& head, std::span<float> message) {
  std::memcpy(message.data(), &head, sizeof head);
}

/// An Order, an Introduction or another record of whole floats as a message of its own.
template <class T>
void send_record(RankChannel& channel, int64_t to, const T& record) {
  static_assert(sizeof(T) % sizeof(float) == 0);
  std::vector<float> message(sizeof(T) / sizeof(float));
  write_head(record, message);
  channel.send(to, message)->wait();
}
template <class T>
[[nodiscard]] T receive_record(RankChannel& channel, int64_t from) {
  static_assert(sizeof(T) % sizeof(float) == 0);
  std::vector<float> message(sizeof(T) / sizeof(float));
  channel.receive(from, message)->wait();
  return read_head<T>(message);
}

/// Rows of a part that a share holds; rows of HeadProjections are numbered head * n + row.
[[nodiscard]] RowRange held_rows(const Part& part, const Share& share);
[[nodiscard]] int64_t columns(const Part& part);
/// Reads a row that this rank holds into out [columns].
void read_row(const Part& part, int64_t row, float* out);

}  // namespace kvarena
