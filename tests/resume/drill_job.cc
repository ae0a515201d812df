#include "tests/resume/drill_job.h"

#include <openssl/sha.h>

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "runtime/base/clock.h"
#include "runtime/base/posix_file_system.h"
#include "runtime/base/status_macros.h"
#include "runtime/checkpoint/checkpoint_folder.h"
#include "runtime/config/model_layout.h"
#include "runtime/config/shapes.h"
#include "runtime/planner/planner.h"
#include "runtime/safetensors/safetensors_writer.h"
#include "runtime/trainer/trainer.h"

namespace megatrain {
namespace {

constexpr int kOptimizerThreads = 8;

// SplitMix64's step: a cheap source of numbers that are the same everywhere.
uint64_t Mix(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

nlohmann::json ConfigJson(const ModelConfig& config) {
  return {{"architectures", {config.architecture}},
          {"model_type", config.model_type},
          {"vocab_size", config.vocab_size},
          {"hidden_size", config.hidden_size},
          {"intermediate_size", config.mlp_width},
          {"num_hidden_layers", config.layer_count},
          {"num_attention_heads", config.head_count},
          {"num_key_value_heads", config.kv_head_count},
          {"hidden_act", "silu"},
          {"max_position_embeddings", 32768},
          {"rope_theta", 1000000.0},
          {"rms_norm_eps", 1e-6},
          {"tie_word_embeddings", config.tied},
          {"torch_dtype", "bfloat16"}};
}

// Norms are 1, biases 0, matrices small.
uint16_t Weight(const TensorLayout& tensor, uint64_t index) {
  if (tensor.shape.size() == 1) {
    const bool is_norm = tensor.name.find("norm") != std::string::npos;
    return is_norm ? 0x3f80 : 0;
  }
  const uint64_t bits = Mix(index * 0x9e3779b97f4a7c15);
  // A sign, an exponent of 2^-6 or 2^-7, and seven bits of mantissa.
  return static_cast<uint16_t>(((bits & 1) << 15) | ((120 + (bits >> 1 & 1)) << 7) |
                               (bits >> 2 & 0x7f));
}

absl::Status WriteWeights(const std::string& path, const ModelLayout& layout, FileSystem& files) {
  SafetensorsHeader header;
  int64_t offset_bytes = 0;
  for (const UnitLayout& unit : layout.units) {
    for (const TensorLayout& tensor : unit.tensors) {
      const int64_t size_bytes = tensor.element_count * SizeBytes(TensorDtype::kBf16);
      header.tensors.push_back({.name = tensor.name,
                                .dtype = TensorDtype::kBf16,
                                .shape = tensor.shape,
                                .offset_bytes = offset_bytes,
                                .size_bytes = size_bytes});
      offset_bytes += size_bytes;
    }
  }
  MT_ASSIGN_OR_RETURN(const auto writer, SafetensorsWriter::Create(path, header, files));
  std::vector<uint16_t> piece;
  uint64_t index = 0;
  for (const UnitLayout& unit : layout.units) {
    for (const TensorLayout& tensor : unit.tensors) {
      for (int64_t done = 0; done < tensor.element_count; done += piece.size()) {
        piece.resize(std::min<int64_t>(tensor.element_count - done, 1 << 20));
        for (uint16_t& weight : piece) {
          weight = Weight(tensor, ++index);
        }
        MT_RETURN_IF_ERROR(writer->Append(
            {reinterpret_cast<const char*>(piece.data()), piece.size() * sizeof(uint16_t)}));
      }
    }
  }
  return writer->Finish();
}

template <typename Item>
nlohmann::json WriteItems(const std::string& path, const std::vector<Item>& items) {
  const std::string bytes(reinterpret_cast<const char*>(items.data()), items.size() * sizeof(Item));
  std::ofstream(path, std::ios::binary) << bytes;
  std::string digest(SHA256_DIGEST_LENGTH, '\0');
  SHA256(reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(),
         reinterpret_cast<unsigned char*>(digest.data()));
  return {{"size_bytes", bytes.size()}, {"sha256", absl::BytesToHexString(digest)}};
}

void WriteData(const DrillOptions& options, const std::string& folder, int64_t vocabulary) {
  const int64_t rows = options.rows * 3;  // epochs end within the drill
  std::vector<int32_t> tokens;
  std::vector<uint8_t> trained;
  std::vector<int64_t> offsets = {0};
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t i = 0; i < options.tokens; ++i) {
      tokens.push_back(static_cast<int32_t>(Mix(row * options.tokens + i + 1) %
                                            static_cast<uint64_t>(vocabulary)));
      trained.push_back(i > 0 ? 1 : 0);
    }
    offsets.push_back(static_cast<int64_t>(tokens.size()));
  }
  nlohmann::json files;
  files["tokens.bin"] = WriteItems(folder + "/tokens.bin", tokens);
  files["trained.bin"] = WriteItems(folder + "/trained.bin", trained);
  files["rows.bin"] = WriteItems(folder + "/rows.bin", offsets);
  const nlohmann::json manifest = {{"format", 1},
                                   {"row_count", rows},
                                   {"token_count", tokens.size()},
                                   {"trained_token_count", rows * (options.tokens - 1)},
                                   {"longest_row_tokens", options.tokens},
                                   {"fingerprint", std::string(64, 'd')},
                                   {"files", files}};
  std::ofstream(folder + "/manifest.json") << manifest.dump();
}

// Prints what the parent process reads.
class PrintingObserver final : public TrainObserver {
 public:
  // The job is to stop once `last_step` is saved.
  PrintingObserver(std::string folder, int64_t last_step, FileSystem& files, const Clock& clock)
      : folder_(std::move(folder)),
        last_step_(last_step),
        files_(files),
        clock_(clock),
        start_(clock.MonotonicNow()) {}

  void OnPhase(TrainPhase phase) override { Tell(std::string(TrainPhaseName(phase))); }
  void OnPhaseProgress(TrainPhase phase, int64_t done_bytes, int64_t all_bytes) override {
    Tell(absl::StrCat(std::string(TrainPhaseName(phase)), ", ", FormatBytes(done_bytes), " of ",
                      FormatBytes(all_bytes)));
  }
  void OnPlanned(const Plan&, int64_t, int64_t first_step) override {
    std::printf("from %" PRId64 "\n", first_step);
  }
  void OnStep(const StepReport& report, const AllStreamFigures&) override {
    std::printf("step %" PRId64 " %a\n", report.step, report.loss);
    std::fflush(stdout);
  }
  void OnLogLine(const std::string& line) override { Tell(line); }
  void OnCheckpoint(const CheckpointReport& report) override {
    std::printf("checkpoint %s %" PRId64 " %.6f %.6f %d\n", report.id.c_str(), report.size_bytes,
                absl::ToDoubleSeconds(report.write), absl::ToDoubleSeconds(report.stall),
                report.direct ? 1 : 0);
    std::fflush(stdout);
    saved_step_ = report.step;
    const auto listing = ListCheckpoints(folder_, files_);
    for (size_t i = 0; listing.ok() && i + 1 < listing->valid.size(); ++i) {
      files_.RemoveTree(listing->valid[i].path).IgnoreError();
    }
  }
  void OnEvaluation(const EvaluationReport&) override {}
  void OnDiskWait(const CheckpointFailure& failure) override {
    std::fprintf(stderr, "%s\n", failure.status.ToString().c_str());
  }
  void OnStall(const std::string& what) override {
    std::fprintf(stderr, "stalled: %s\n", what.c_str());
    std::abort();
  }
  std::optional<SaveRequest> OnCheckpointFailed(const CheckpointFailure& failure) override {
    std::fprintf(stderr, "%s\n", failure.status.ToString().c_str());
    return std::nullopt;
  }
  std::optional<SaveRequest> TakeSaveRequest() override { return std::nullopt; }
  bool StopRequested() override { return all_saved(); }

  bool all_saved() const { return saved_step_ == last_step_; }

 private:
  void Tell(const std::string& what) const {
    std::fprintf(stderr, "%7.1f s  %s\n", absl::ToDoubleSeconds(clock_.MonotonicNow() - start_),
                 what.c_str());
  }

  const std::string folder_;
  const int64_t last_step_;
  FileSystem& files_;
  const Clock& clock_;
  const absl::Duration start_;
  int64_t saved_step_ = 0;
};

}  // namespace

absl::Status WriteDrillInputs(const DrillOptions& options) {
  PosixFileSystem files;
  MT_ASSIGN_OR_RETURN(ModelConfig shape, ShapeByName(options.shape));
  MT_ASSIGN_OR_RETURN(shape, Resized(shape, options.layers, 1.0));
  const std::string model = options.folder + "/model";
  const std::string data = options.folder + "/data";
  MT_RETURN_IF_ERROR(files.MakeFolders(model));
  MT_RETURN_IF_ERROR(files.MakeFolders(data));
  const std::string text = ConfigJson(shape).dump(1);
  MT_ASSIGN_OR_RETURN(const ModelConfig config, ParseModelConfig(text));
  if (!files.Exists(model + "/config.json")) {
    MT_RETURN_IF_ERROR(WriteWeights(model + "/model.safetensors", MakeModelLayout(config), files));
    std::ofstream(model + "/config.json") << text;
  }
  WriteData(options, data, config.vocab_size);
  return absl::OkStatus();
}

TrainJob MakeDrillJob(const DrillOptions& options, const std::string& name) {
  TrainJob job;
  job.model_path = options.folder + "/model";
  job.data_path = options.folder + "/data";
  job.output_path = options.folder + "/" + name + "_output";
  job.batches = {.batch_rows = options.rows,
                 .max_sequence_length = options.tokens,
                 .seed = 1,
                 .steps = options.steps};
  job.compute_dtype = options.dtype == "fp32" ? ComputeDtype::kFloat32 : ComputeDtype::kBfloat16;
  job.attention = AttentionMode::kDeterministic;
  job.schedule = {.peak = 1e-4, .warmup_steps = 2};
  job.optimizer.weight_decay = 0.1;
  job.save = {.folder = options.folder + "/" + name, .every_steps = options.every, .at_end = true};
  return job;
}

absl::Status RunDrillJob(const DrillOptions& options, const std::string& name,
                         ComputeBackend& backend) {
  PosixFileSystem files;
  SystemClock clock;
  TrainJob job = MakeDrillJob(options, name);
  const auto listing = ListCheckpoints(job.save.folder, files);
  if (listing.ok() && !listing->valid.empty()) {
    job.start.resume_path = listing->valid.back().path;
  }
  PrintingObserver observer(job.save.folder, options.steps, files, clock);
  Trainer trainer({backend, files, clock}, kOptimizerThreads);
  const absl::Status ended = trainer.Run(job, observer).status();
  return absl::IsCancelled(ended) && observer.all_saved() ? absl::OkStatus() : ended;
}

}  // namespace megatrain
