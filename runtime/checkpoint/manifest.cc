#include "runtime/checkpoint/manifest.h"

#include <limits>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "nlohmann/json.hpp"
#include "runtime/base/bounded_json.h"
#include "runtime/base/crc32c.h"
#include "runtime/base/json_fields.h"
#include "runtime/base/status_macros.h"

namespace megatrain {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kFormat = 1;
constexpr size_t kCrcDigits = 8;
constexpr char kLastField[] = ",\n \"manifest_crc32c\": \"";
constexpr std::string_view kClosing = "\"\n}\n";
constexpr JsonLimits kLimits = {.size_bytes = int64_t{64} << 20, .depth = 8};
constexpr int64_t kMaxSteps = int64_t{1} << 40;
constexpr int64_t kMaxBytes = int64_t{1} << 60;

// The names in order of the enum's values.
template <size_t kCount>
using Names = const char* const[kCount];
constexpr Names<6> kTriggers = {"periodic", "manual", "pause", "drain", "final", "preempt"};
constexpr Names<2> kDtypes = {"fp32", "bf16"};
constexpr Names<3> kShapes = {"constant", "linear", "cosine"};

template <size_t kCount, typename Value>
std::string NameOf(Names<kCount>& names, Value value) {
  return names[static_cast<size_t>(value)];
}

template <typename Value, size_t kCount>
Value ReadName(JsonFields& fields, const char* name, Names<kCount>& names) {
  const std::string text = fields.Text(name);
  for (size_t i = 0; i < kCount; ++i) {
    if (text == names[i]) {
      return static_cast<Value>(i);
    }
  }
  fields.Refuse(absl::StrCat(fields.where(), name, " is \"", text, "\", which is unknown"));
  return Value{};
}

std::string Hex(uint32_t crc) { return absl::StrFormat("%08x", crc); }

// 0 for what is no checksum.
uint32_t FromHex(const std::string& digits) {
  return IsHex(digits, kCrcDigits) ? static_cast<uint32_t>(std::stoul(digits, nullptr, 16)) : 0;
}

// A loss that is not finite is null: JSON has no word for it.
Json MarkToJson(const std::optional<EvaluationMark>& mark) {
  return mark ? Json{{"step", mark->step}, {"loss", mark->loss}} : Json(nullptr);
}

std::optional<EvaluationMark> ReadMark(JsonFields& fields, const char* name) {
  const nlohmann::json& value = fields.Any(name);
  if (value.is_null()) {
    return std::nullopt;
  }
  JsonFields mark(value, absl::StrCat(fields.where(), name, "."));
  EvaluationMark result{.step = mark.Number("step", 0, kMaxSteps),
                        .loss = std::numeric_limits<double>::quiet_NaN()};
  if (!mark.Any("loss").is_null()) {
    result.loss = mark.Real("loss");
  }
  fields.Refuse(std::string(mark.status().message()));
  return result;
}

Json ProgressToJson(const TrainingProgress& progress) {
  return {{"step", progress.step},
          {"update_count", progress.update_count},
          {"skipped_in_a_row", progress.skipped_in_a_row},
          {"rows_crc32c", Hex(progress.rows_crc32c)},
          {"last_evaluation", MarkToJson(progress.last_evaluation)},
          {"best_evaluation", MarkToJson(progress.best_evaluation)},
          {"evaluations_without_gain", progress.evaluations_without_gain},
          {"stopped_early", progress.stopped_early}};
}

TrainingProgress ReadProgress(JsonFields fields, JsonFields& parent) {
  TrainingProgress progress;
  progress.step = fields.Number("step", 0, kMaxSteps);
  progress.update_count = fields.Number("update_count", 0, progress.step);
  progress.skipped_in_a_row =
      fields.Number("skipped_in_a_row", 0, progress.step - progress.update_count);
  progress.rows_crc32c = FromHex(fields.HexDigest("rows_crc32c", kCrcDigits));
  progress.last_evaluation = ReadMark(fields, "last_evaluation");
  progress.best_evaluation = ReadMark(fields, "best_evaluation");
  progress.evaluations_without_gain = fields.Number("evaluations_without_gain", 0, kMaxSteps);
  progress.stopped_early = fields.Flag("stopped_early");
  parent.Refuse(std::string(fields.status().message()));
  return progress;
}

Json OrderToJson(const TrainingOrder& order) {
  return {{"model_fingerprint", order.model_fingerprint},
          {"data_fingerprint", order.data_fingerprint},
          {"validation_fingerprint", order.validation_fingerprint},
          {"validation_split", order.validation_split},
          {"seed", order.seed},
          {"batch_rows", order.batch_rows},
          {"micro_batch_rows", order.micro_batch_rows},
          {"max_sequence_length", order.max_sequence_length},
          {"packing", order.packing},
          {"compute_dtype", NameOf(kDtypes, order.compute_dtype)}};
}

TrainingOrder ReadOrder(JsonFields fields, JsonFields& parent) {
  TrainingOrder order{.model_fingerprint = fields.Text("model_fingerprint"),
                      .data_fingerprint = fields.Text("data_fingerprint"),
                      .validation_fingerprint = fields.Text("validation_fingerprint"),
                      .validation_split = fields.Real("validation_split"),
                      .seed = fields.Number("seed", INT64_MIN, INT64_MAX),
                      .batch_rows = fields.Number("batch_rows", 1, INT64_MAX),
                      .micro_batch_rows = fields.Number("micro_batch_rows", 1, INT64_MAX),
                      .max_sequence_length = fields.Number("max_sequence_length", 1, INT64_MAX),
                      .packing = fields.Flag("packing"),
                      .compute_dtype = ReadName<ComputeDtype>(fields, "compute_dtype", kDtypes)};
  parent.Refuse(std::string(fields.status().message()));
  return order;
}

Json ScheduleToJson(const LearningRateSchedule& schedule) {
  return {{"name", NameOf(kShapes, schedule.shape)},
          {"learning_rate", schedule.peak},
          {"floor_ratio", schedule.floor_ratio},
          {"warmup_steps", schedule.warmup_steps},
          {"total_steps", schedule.total_steps}};
}

LearningRateSchedule ReadSchedule(JsonFields fields, JsonFields& parent) {
  LearningRateSchedule schedule{.shape = ReadName<LearningRateShape>(fields, "name", kShapes),
                                .peak = fields.Real("learning_rate"),
                                .floor_ratio = fields.Real("floor_ratio"),
                                .warmup_steps = fields.Number("warmup_steps", 0, INT64_MAX),
                                .total_steps = fields.Number("total_steps", 1, kMaxSteps)};
  parent.Refuse(std::string(fields.status().message()));
  return schedule;
}

Json FileToJson(const CheckpointFile& file) {
  Json chunks = Json::array();
  for (const uint32_t crc : file.chunk_crc32c) {
    chunks.push_back(Hex(crc));
  }
  return {{"size_bytes", file.size_bytes}, {"crc32c", Hex(file.crc32c)}, {"chunk_crc32c", chunks}};
}

CheckpointFile ReadFile(const std::string& name, JsonFields fields, JsonFields& parent) {
  CheckpointFile file{.name = name,
                      .size_bytes = fields.Number("size_bytes", 0, kMaxBytes),
                      .crc32c = FromHex(fields.HexDigest("crc32c", kCrcDigits)),
                      .chunk_crc32c = {}};
  for (const nlohmann::json& chunk : fields.Any("chunk_crc32c")) {
    const std::string digits = chunk.is_string() ? chunk.get<std::string>() : "";
    if (!IsHex(digits, kCrcDigits)) {
      fields.Refuse(absl::StrCat(fields.where(), "chunk_crc32c holds what is no checksum"));
      break;
    }
    file.chunk_crc32c.push_back(FromHex(digits));
  }
  const int64_t chunks = (file.size_bytes + kCheckpointChunkBytes - 1) / kCheckpointChunkBytes;
  if (static_cast<int64_t>(file.chunk_crc32c.size()) != chunks) {
    fields.Refuse(absl::StrCat(fields.where(), "chunk_crc32c has ", file.chunk_crc32c.size(),
                               " checksums for ", chunks, " pieces"));
  }
  if (name.empty() || name.find('/') != std::string::npos || name[0] == '.') {
    fields.Refuse(absl::StrCat("files: \"", name, "\" is no name of a file"));
  }
  parent.Refuse(std::string(fields.status().message()));
  return file;
}

absl::Status CheckOwnChecksum(std::string_view text) {
  const size_t tail = kCrcDigits + kClosing.size();
  const auto damaged = [](const char* how) {
    return absl::DataLossError(absl::StrCat("is damaged: ", how));
  };
  if (text.size() < tail || !text.ends_with(kClosing)) {
    return damaged("it does not end as a manifest does");
  }
  const std::string_view covered = text.substr(0, text.size() - tail);
  const std::string digits(text.substr(covered.size(), kCrcDigits));
  if (!covered.ends_with(kLastField)) {
    return damaged("it does not end with its checksum");
  }
  if (!IsHex(digits, kCrcDigits) || FromHex(digits) != Crc32c(covered)) {
    return damaged("its text does not have its own checksum");
  }
  return absl::OkStatus();
}

}  // namespace

std::string_view TriggerName(CheckpointTrigger trigger) {
  return kTriggers[static_cast<size_t>(trigger)];
}

int64_t CheckpointManifest::SizeBytes() const {
  int64_t total = 0;
  for (const CheckpointFile& file : files) {
    total += file.size_bytes;
  }
  return total;
}

std::string SerializeManifest(const CheckpointManifest& manifest) {
  Json files = Json::object();
  for (const CheckpointFile& file : manifest.files) {
    files[file.name] = FileToJson(file);
  }
  const Json json = {{"format", kFormat},
                     {"trigger", NameOf(kTriggers, manifest.trigger)},
                     {"create_time_unix_nanos", absl::ToUnixNanos(manifest.create_time)},
                     {"progress", ProgressToJson(manifest.progress)},
                     {"order", OrderToJson(manifest.order)},
                     {"schedule", ScheduleToJson(manifest.schedule)},
                     {"spec", manifest.spec},
                     {"unit_elements", manifest.unit_elements},
                     {"chunk_bytes", kCheckpointChunkBytes},
                     {"files", files}};
  // What is no UTF-8 in the spec is replaced: JSON could not carry it.
  std::string text = json.dump(1, ' ', false, Json::error_handler_t::replace);
  text.resize(text.size() - 2);  // the closing "\n}"
  text += kLastField;
  return absl::StrCat(text, Hex(Crc32c(text)), absl::string_view(kClosing.data(), kClosing.size()));
}

absl::StatusOr<CheckpointManifest> ParseCheckpointManifest(std::string_view text) {
  MT_RETURN_IF_ERROR(CheckOwnChecksum(text));
  MT_ASSIGN_OR_RETURN(const nlohmann::json json, ParseBoundedJson(text, kLimits));
  JsonFields fields(json, "");
  const int64_t format = fields.Number("format", 1, INT64_MAX);
  if (format > kFormat) {
    return absl::UnimplementedError(absl::StrCat("format is ", format, " but this version reads ",
                                                 kFormat, ": use the version that wrote it"));
  }
  fields.Number("chunk_bytes", kCheckpointChunkBytes, kCheckpointChunkBytes);
  CheckpointManifest manifest{
      .progress = ReadProgress(fields.Object("progress"), fields),
      .order = ReadOrder(fields.Object("order"), fields),
      .schedule = ReadSchedule(fields.Object("schedule"), fields),
      .unit_elements = {},
      .trigger = ReadName<CheckpointTrigger>(fields, "trigger", kTriggers),
      .create_time = absl::FromUnixNanos(fields.Number("create_time_unix_nanos", 0, INT64_MAX)),
      .spec = fields.Text("spec"),
      .files = {}};
  for (const nlohmann::json& unit : fields.Any("unit_elements")) {
    const bool is_count = unit.is_number_unsigned() && unit.get<uint64_t>() <= uint64_t{kMaxBytes};
    fields.Refuse(is_count ? "" : "unit_elements holds what is no count");
    manifest.unit_elements.push_back(is_count ? unit.get<int64_t>() : 0);
  }
  JsonFields files = fields.Object("files");
  for (const auto& [name, value] : files.object().items()) {
    manifest.files.push_back(ReadFile(name, files.Object(name.c_str()), fields));
  }
  MT_RETURN_IF_ERROR(fields.status());
  return manifest;
}

}  // namespace megatrain
