#include "runtime/safetensors/safetensors_header.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "runtime/base/bounded_json.h"
#include "runtime/base/status_macros.h"

namespace megatrain {
namespace {

using nlohmann::json;

constexpr int kAlignmentBytes = 8;

absl::Status BadTensor(const std::string& name, const std::string& why) {
  return absl::InvalidArgumentError(absl::StrCat("tensor \"", name, "\": ", why));
}

// A list of non-negative integers that int64 holds.
absl::StatusOr<std::vector<int64_t>> ReadIntegers(const std::string& name, const json& entry,
                                                  const char* key) {
  auto found = entry.find(key);
  if (found == entry.end() || !found->is_array()) {
    return BadTensor(name, absl::StrCat(key, " is not a list"));
  }
  std::vector<int64_t> values;
  for (const json& value : *found) {
    if (!value.is_number_unsigned() || value.get<uint64_t>() > uint64_t{INT64_MAX}) {
      return BadTensor(name, absl::StrCat(key, " holds ", value.dump()));
    }
    values.push_back(value.get<int64_t>());
  }
  return values;
}

// False when the product does not fit int64.
bool TensorBytes(TensorDtype dtype, const std::vector<int64_t>& shape, int64_t* bytes) {
  *bytes = SizeBytes(dtype);
  for (int64_t size : shape) {
    if (__builtin_mul_overflow(*bytes, size, bytes)) {
      return false;
    }
  }
  return true;
}

absl::StatusOr<TensorEntry> ReadTensor(const std::string& name, const json& value) {
  if (!value.is_object()) {
    return BadTensor(name, "is not an object");
  }
  TensorEntry tensor;
  tensor.name = name;
  auto dtype_text = value.find("dtype");
  if (dtype_text == value.end() || !dtype_text->is_string()) {
    return BadTensor(name, "has no dtype");
  }
  auto dtype = TensorDtypeFromName(dtype_text->get_ref<const std::string&>());
  if (!dtype.has_value()) {
    return BadTensor(name, absl::StrCat("has the unknown dtype ", dtype_text->dump()));
  }
  tensor.dtype = *dtype;
  MT_ASSIGN_OR_RETURN(tensor.shape, ReadIntegers(name, value, "shape"));
  MT_ASSIGN_OR_RETURN(const std::vector<int64_t> offsets,
                      ReadIntegers(name, value, "data_offsets"));
  if (offsets.size() != 2 || offsets[0] > offsets[1]) {
    return BadTensor(name, "data_offsets is not a begin and an end");
  }
  tensor.offset_bytes = offsets[0];
  tensor.size_bytes = offsets[1] - offsets[0];
  int64_t expected = 0;
  if (!TensorBytes(tensor.dtype, tensor.shape, &expected) || expected != tensor.size_bytes) {
    return BadTensor(name, absl::StrCat("data_offsets span ", tensor.size_bytes,
                                        " bytes, which dtype and shape do not"));
  }
  return tensor;
}

absl::Status ReadMetadata(const json& value, std::map<std::string, std::string>* metadata) {
  if (!value.is_object()) {
    return absl::InvalidArgumentError("__metadata__ is not an object");
  }
  for (const auto& [key, text] : value.items()) {
    if (!text.is_string()) {
      return absl::InvalidArgumentError(
          absl::StrCat("__metadata__: \"", key, "\" is not a string"));
    }
    (*metadata)[key] = text.get<std::string>();
  }
  return absl::OkStatus();
}

// One after the other, from 0 on.
absl::Status CheckCoverage(const std::vector<TensorEntry>& tensors) {
  int64_t end = 0;
  for (const TensorEntry& tensor : tensors) {
    if (tensor.offset_bytes != end) {
      return BadTensor(tensor.name, absl::StrCat("begins at byte ", tensor.offset_bytes,
                                                 ", but the one before it ends at byte ", end));
    }
    end += tensor.size_bytes;
  }
  return absl::OkStatus();
}

}  // namespace

int64_t SafetensorsHeader::DataBytes() const {
  return tensors.empty() ? 0 : tensors.back().offset_bytes + tensors.back().size_bytes;
}

absl::StatusOr<SafetensorsHeader> ParseSafetensorsHeader(std::string_view text) {
  constexpr int kDepth = 3;  // the header, a tensor, its shape
  MT_ASSIGN_OR_RETURN(
      const json root,
      ParseBoundedJson(text, {.size_bytes = kMaxSafetensorsHeaderBytes, .depth = kDepth}));
  if (!root.is_object()) {
    return absl::InvalidArgumentError("the header is not an object");
  }
  SafetensorsHeader header;
  for (const auto& [name, value] : root.items()) {
    if (name == "__metadata__") {
      MT_RETURN_IF_ERROR(ReadMetadata(value, &header.metadata));
      continue;
    }
    MT_ASSIGN_OR_RETURN(TensorEntry tensor, ReadTensor(name, value));
    header.tensors.push_back(std::move(tensor));
  }
  // Empty tensors may share their offset with the one that follows: before it they go.
  std::sort(header.tensors.begin(), header.tensors.end(),
            [](const TensorEntry& a, const TensorEntry& b) {
              return std::tie(a.offset_bytes, a.size_bytes, a.name) <
                     std::tie(b.offset_bytes, b.size_bytes, b.name);
            });
  MT_RETURN_IF_ERROR(CheckCoverage(header.tensors));
  return header;
}

std::string SerializeSafetensorsHeader(const SafetensorsHeader& header) {
  nlohmann::ordered_json root = nlohmann::ordered_json::object();
  if (!header.metadata.empty()) {
    root["__metadata__"] = header.metadata;
  }
  int64_t offset = 0;
  for (const TensorEntry& tensor : header.tensors) {
    int64_t bytes = 0;
    TensorBytes(tensor.dtype, tensor.shape, &bytes);
    root[tensor.name] = {{"dtype", TensorDtypeName(tensor.dtype)},
                         {"shape", tensor.shape},
                         {"data_offsets", {offset, offset + bytes}}};
    offset += bytes;
  }
  std::string text = root.dump();
  text.append((kAlignmentBytes - text.size() % kAlignmentBytes) % kAlignmentBytes, ' ');
  std::string bytes;
  for (int i = 0; i < 8; ++i) {
    bytes.push_back(static_cast<char>(text.size() >> (8 * i)));
  }
  return bytes + text;
}

}  // namespace megatrain
