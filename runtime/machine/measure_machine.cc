#include "runtime/machine/measure_machine.h"

#include <algorithm>
#include <atomic>
#include <fstream>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/write_file.h"
#include "runtime/benchmark/random_model.h"
#include "runtime/checkpoint/disk_speed.h"
#include "runtime/device/copy_speed.h"
#include "runtime/device/slab_launcher.h"
#include "runtime/optimizer/adamw_measurement.h"
#include "runtime/optimizer/memory_bandwidth.h"
#include "runtime/pipeline/pipeline_options.h"
#include "runtime/planner/planner.h"
#include "runtime/planner/step_prediction.h"
#include "runtime/trainer/model_session.h"

namespace megatrain {
namespace {

constexpr int64_t kMebibyte = int64_t{1} << 20;
constexpr int64_t kMostFileBytes = 64 << 10;

// Copies are at line rate from 16 MiB on.
constexpr int64_t kCopyBytes = 32 * kMebibyte;
constexpr int kCopiesAtOnce = 4;
constexpr int kCopiesBeside = 1000;  // more than any bus does in kHostTime
constexpr absl::Duration kCopyTime = absl::Milliseconds(50);

// Many slabs, so that the first one's filling is as small a part as it is of a layer's weights; for
// processors, whose copies are no slower than slabs, fewer.
constexpr int64_t kSlabCopyBytes = 192 * kMebibyte;
constexpr int64_t kSlabCopyBytesForProcessors = 32 * kMebibyte;

// Larger than caches for each thread, within what a large host's caches hold in all.
constexpr int64_t kBytesOfThread = 96 * kMebibyte;
constexpr int64_t kMostMemoryBytes = 2048 * kMebibyte;
constexpr absl::Duration kHostTime = absl::Milliseconds(150);

// More than a disk's cache takes; for processors, whose jobs are small, less.
constexpr int64_t kDiskBytes = 1024 * kMebibyte;
constexpr int64_t kDiskBytesForProcessors = 32 * kMebibyte;
constexpr absl::Duration kDiskTime = absl::Seconds(2);

constexpr int kHostStateBytes = 24;  // AdamW's, of a parameter, with two more of a bf16 gradient
constexpr int kGradientBytes = 2;
constexpr double kLowShare = 0.6;

// A step of one layer, large enough to be the machine's usual work, and how long it is repeated.
// Of several micro-batches on a GPU: a chip at its power limit gains on every pause, and updates,
// which take less power than products, are a smaller share of a step, as they are in training.
struct LayerWork {
  int64_t hidden;
  int64_t mlp;
  int64_t micro_batches;
  int64_t rows;  // of one of them
  int64_t row_tokens;
  ComputeDtype dtype;
  absl::Duration warm_up;
  absl::Duration time;
};

LayerWork WorkFor(Backend backend) {
  if (backend == Backend::kCpu) {
    return {512,
            1536,
            1,
            1,
            128,
            ComputeDtype::kFloat32,
            absl::ZeroDuration(),
            absl::Milliseconds(200)};
  }
  return {4096, 14336, 4, 8, 1024, ComputeDtype::kBfloat16, absl::Seconds(2), absl::Seconds(1)};
}

absl::StatusOr<ModelConfig> LayerConfig(const LayerWork& work) {
  return ParseModelConfig(absl::StrFormat(
      R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 1024,
          "hidden_size": %d, "intermediate_size": %d, "num_hidden_layers": 1,
          "num_attention_heads": %d, "num_key_value_heads": %d, "hidden_act": "silu",
          "max_position_embeddings": 1024, "rope_theta": 10000.0, "rms_norm_eps": 1e-5,
          "tie_word_embeddings": true})",
      work.hidden, work.mlp, work.hidden / 128, std::max<int64_t>(work.hidden / 512, 1)));
}

// Repeats steps for that long at least; seconds of the compute stream's work in one of them.
absl::StatusOr<double> RunSteps(const StepBatch& batch, absl::Duration at_least,
                                StepPipeline& pipeline, const Clock& clock) {
  const auto busy = [&] {
    return pipeline.Figures()[static_cast<size_t>(StreamKind::kCompute)].busy;
  };
  const absl::Duration before = busy();
  const absl::Duration start = clock.MonotonicNow();
  int steps = 0;
  while (steps == 0 || clock.MonotonicNow() - start < at_least) {
    StepInput input{.loss_token_count = batch.loss_token_count};
    for (const OwnedMicroBatch& micro_batch : batch.micro_batches) {
      input.micro_batches.push_back(micro_batch.View());
    }
    MT_RETURN_IF_ERROR(pipeline.SubmitStep(std::move(input)));
    MT_RETURN_IF_ERROR(pipeline.WaitStep().status());
    ++steps;
  }
  MT_RETURN_IF_ERROR(pipeline.WaitForUpdates());
  return absl::ToDoubleSeconds(busy() - before) / steps;
}

// How many times as fast as an H200 this device is in a layer's training.
absl::StatusOr<double> LayerRatio(ComputeBackend& backend, int threads, Clock& clock) {
  const LayerWork work = WorkFor(backend.kind());
  MT_ASSIGN_OR_RETURN(const ModelConfig config, LayerConfig(work));
  MT_ASSIGN_OR_RETURN(const ComputeBackend::DeviceMemory device, backend.ReadDeviceMemory());
  const Plan plan =
      PlanJob(config,
              {.batch_rows = work.micro_batches * work.rows,
               .micro_batch_rows = work.rows,
               .max_sequence_length = work.row_tokens,
               .compute_dtype = work.dtype},
              {.backend = backend.kind(),
               .device_memory_bytes = PipelineDeviceBytes(device.total_bytes, device.free_bytes,
                                                          /*limit_bytes=*/0)});
  MT_ASSIGN_OR_RETURN(const std::unique_ptr<ModelSession> session,
                      ModelSession::Create(config,
                                           {.optimizer_threads = threads,
                                            .templates = {.dtype = work.dtype,
                                                          .attention = AttentionMode::kFast,
                                                          .limits = plan.limits}},
                                           backend, clock));
  FillRandomWeights(session->layout(), /*seed=*/1, session->pool(), session->store());
  MT_RETURN_IF_ERROR(session->StartPipeline(plan.pipeline, /*progress=*/{}));
  const int64_t tokens = work.rows * work.row_tokens;
  MT_ASSIGN_OR_RETURN(const StepBatch batch, RandomStep({.tokens = work.micro_batches * tokens,
                                                         .sequence_length = work.row_tokens,
                                                         .micro_batch_tokens = tokens},
                                                        config.vocab_size, /*seed=*/1));
  StepPipeline& pipeline = session->pipeline();
  MT_RETURN_IF_ERROR(RunSteps(batch, work.warm_up, pipeline, clock).status());
  MT_ASSIGN_OR_RETURN(const double seconds, RunSteps(batch, work.time, pipeline, clock));
  MT_RETURN_IF_ERROR(pipeline.Drain());
  const MachineSpeeds h200;
  const StepPredictor predictor{config, session->layout(), plan.step, h200};
  return predictor.ComputeSeconds(plan.pipeline) / seconds;
}

// Bytes a second, each way that is used.
class BusMeasurement {
 public:
  BusMeasurement(Device& device, const Clock& clock) : device_(device), clock_(clock) {}

  absl::Status Prepare() {
    for (Way* way : {&up_, &down_}) {
      MT_ASSIGN_OR_RETURN(way->device, device_.Allocate(kCopyBytes));
      MT_ASSIGN_OR_RETURN(way->host, device_.AllocateHost(kCopyBytes));
      way->stream = device_.MakeStream(StreamPlace::kDevice);
    }
    return Repeat(true, true, 1);  // touches the memory
  }

  absl::StatusOr<double> Measure(bool up, bool down) {
    const absl::Duration start = clock_.MonotonicNow();
    int rounds = 0;
    while (clock_.MonotonicNow() - start < kCopyTime) {
      MT_RETURN_IF_ERROR(Repeat(up, down, kCopiesAtOnce));
      ++rounds;
    }
    return static_cast<double>(rounds * kCopiesAtOnce) * kCopyBytes /
           absl::ToDoubleSeconds(clock_.MonotonicNow() - start);
  }

  // Of both ways together while `work` runs.
  absl::StatusOr<double> MeasureBeside(const std::function<void()>& work) {
    std::atomic<bool> over = false;
    for (int i = 0; i < kCopiesBeside; ++i) {
      Enqueue(up_, /*up=*/true, &over);
      Enqueue(down_, /*up=*/false, &over);
    }
    const auto copies = [&] {
      return up_.stream->Figures().operation_count + down_.stream->Figures().operation_count;
    };
    const int64_t before = copies();
    const absl::Duration start = clock_.MonotonicNow();
    work();
    const auto bytes = static_cast<double>((copies() - before) * kCopyBytes);
    const double rate = bytes / absl::ToDoubleSeconds(clock_.MonotonicNow() - start);
    over = true;
    MT_RETURN_IF_ERROR(device_.Drain());
    return rate;
  }

 private:
  struct Way {
    std::unique_ptr<DeviceBuffer> device;
    std::unique_ptr<DeviceBuffer> host;
    std::unique_ptr<Stream> stream;  // last: its work uses both
  };

  // One copy, unless it begins when `over` is set.
  static void Enqueue(Way& way, bool up, const std::atomic<bool>* over) {
    way.stream->Enqueue([&way, up, over](Launcher& launcher) {
      if (over != nullptr && *over) {
        return absl::OkStatus();
      }
      if (up) {
        launcher.CopyToDevice(way.device->data(), way.host->data(), kCopyBytes);
      } else {
        launcher.CopyToHost(way.host->data(), way.device->data(), kCopyBytes);
      }
      return absl::OkStatus();
    });
  }

  absl::Status Repeat(bool up, bool down, int count) {
    for (int i = 0; i < count; ++i) {
      if (up) {
        Enqueue(up_, /*up=*/true, nullptr);
      }
      if (down) {
        Enqueue(down_, /*up=*/false, nullptr);
      }
    }
    return device_.Drain();
  }

  Device& device_;
  const Clock& clock_;
  Way up_;
  Way down_;
};

absl::Status MeasureBus(BusMeasurement& bus, MachineSpeeds& speeds) {
  MT_ASSIGN_OR_RETURN(speeds.bus_up_bytes, bus.Measure(true, false));
  MT_ASSIGN_OR_RETURN(speeds.bus_down_bytes, bus.Measure(false, true));
  MT_ASSIGN_OR_RETURN(speeds.bus_both_bytes, bus.Measure(true, true));
  return absl::OkStatus();
}

absl::Status MeasureSlabs(int threads, int64_t size_bytes, const Clock& clock, Device& device,
                          MachineSpeeds& speeds) {
  const std::vector<std::byte> pageable(size_bytes);
  MT_ASSIGN_OR_RETURN(const auto lane, SlabLane::Create(device, kSlabBytes, threads));
  MT_ASSIGN_OR_RETURN(speeds.slab_bytes,
                      MeasureCopyToDevice(device, clock, pageable.data(), size_bytes, lane.get()));
  return absl::OkStatus();
}

// No loop of processors alone takes all that the memory gives: on a host of 16 threads 119 GB/s
// by adding in place, 148 by AdamW, 190 by AdamW and copies together.
absl::Status MeasureHost(int threads, const Clock& clock, BusMeasurement& bus,
                         MachineSpeeds& speeds) {
  const int64_t size_bytes = std::min(threads * kBytesOfThread, kMostMemoryBytes);
  const double in_place = MeasureMemoryBandwidth(threads, size_bytes, kHostTime, clock);
  const int64_t elements = size_bytes / (kHostStateBytes + kGradientBytes) / kMebibyte * kMebibyte;
  MT_ASSIGN_OR_RETURN(const auto adamw,
                      AdamWMeasurement::Create({.element_count = std::max(elements, kMebibyte),
                                                .gradient_bytes = kGradientBytes,
                                                .fill_threads = threads}));
  const AdamWMeasurement::Rate alone = adamw->Measure(threads, kHostTime);
  AdamWMeasurement::Rate beside{};
  MT_ASSIGN_OR_RETURN(const double copies,
                      bus.MeasureBeside([&] { beside = adamw->Measure(threads, kHostTime); }));
  speeds.host_updates = alone.parameters_per_second;
  speeds.host_memory_bytes =
      std::max({in_place, alone.bytes_per_second, beside.bytes_per_second + copies});
  return absl::OkStatus();
}

std::string ProcessorName() {
  constexpr std::string_view kKey = "model name";
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (const size_t colon = line.find(": "); line.rfind(kKey, 0) == 0 && colon != line.npos) {
      return line.substr(colon + 2);
    }
  }
  return "unnamed processors";
}

absl::StatusOr<Machine> ReadKept(const std::string& path, FileSystem& files) {
  MT_ASSIGN_OR_RETURN(const std::string text, files.ReadFile(path, kMostFileBytes));
  return ParseMachine(text);
}

// 0, which is measured again at the next start, where the disk takes nothing now.
absl::Status AddDiskSpeed(const std::string& path, FileSystem& files, Clock& clock,
                          MachineProfile& profile) {
  const std::string folder = FolderOfFile(path);
  MT_RETURN_IF_ERROR(files.MakeFolders(folder));
  const int64_t size_bytes =
      profile.backend == Backend::kCpu ? kDiskBytesForProcessors : kDiskBytes;
  profile.disk_write_bytes_per_second =
      MeasureDiskWrite(folder, size_bytes, kDiskTime, files, clock).value_or(0);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<MachineSpeeds> MeasureMachine(ComputeBackend& backend, int threads, Clock& clock) {
  MachineSpeeds speeds;
  MT_ASSIGN_OR_RETURN(const double ratio, LayerRatio(backend, threads, clock));
  speeds.matmul_flops *= ratio;
  speeds.float32_flops *= ratio;
  speeds.attention_flops *= ratio;
  speeds.device_bytes *= ratio;
  if (backend.kind() == Backend::kCpu) {
    speeds.matmul_flops = speeds.float32_flops;  // its products are all in fp32
  }
  MT_ASSIGN_OR_RETURN(const std::unique_ptr<Device> device, backend.MakeDevice(clock));
  BusMeasurement bus(*device, clock);
  MT_RETURN_IF_ERROR(bus.Prepare());
  MT_RETURN_IF_ERROR(MeasureBus(bus, speeds));
  const bool is_cpu = backend.kind() == Backend::kCpu;
  MT_RETURN_IF_ERROR(MeasureSlabs(threads, is_cpu ? kSlabCopyBytesForProcessors : kSlabCopyBytes,
                                  clock, *device, speeds));
  MT_RETURN_IF_ERROR(MeasureHost(threads, clock, bus, speeds));
  return speeds;
}

absl::StatusOr<Machine> KnowMachine(const std::string& path, int threads, ForeignFile foreign,
                                    ComputeBackend& backend, FileSystem& files, Clock& clock) {
  const std::string name =
      absl::StrCat(backend.DeviceName(), "; ", ProcessorName(), ", ", threads, " threads");
  Machine machine{.name = name, .profile = {.backend = backend.kind()}};
  if (absl::StatusOr<Machine> kept = ReadKept(path, files); kept.ok() && kept->name == name) {
    machine = *std::move(kept);
  } else if (foreign == ForeignFile::kRefuse && !absl::IsNotFound(kept.status())) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, " is not what was measured of this machine (", name, "): ",
        kept.ok() ? absl::StrCat("it is of ", kept->name) : std::string(kept.status().message()),
        "; remove it, or name another file"));
  } else {
    MT_ASSIGN_OR_RETURN(machine.profile.speeds, MeasureMachine(backend, threads, clock));
  }
  if (machine.profile.disk_write_bytes_per_second == 0) {
    MT_RETURN_IF_ERROR(AddDiskSpeed(path, files, clock, machine.profile));
    // A disk that takes no file now holds up no engine: only predictions need what is kept here.
    ReplaceFile(files, path, ToJson(machine)).IgnoreError();
  }
  return machine;
}

OptimizerBandwidth DescribeOptimizer(const MachineSpeeds& speeds, int threads) {
  const double adamw = speeds.host_updates * (kHostStateBytes + kGradientBytes);
  const double share = adamw / speeds.host_memory_bytes;
  const bool is_low = share < kLowShare;
  return {.line = absl::StrFormat(
              "%sadamw_bw/D = %.2f: AdamW moves %.1f of %.1f GB/s of host memory, %.2f billion "
              "parameters a second on %d threads",
              is_low ? "ADAMW_FAR_BELOW_MEMORY_BANDWIDTH: " : "", share, adamw / 1e9,
              speeds.host_memory_bytes / 1e9, speeds.host_updates / 1e9, threads),
          .is_low = is_low};
}

}  // namespace megatrain
