#include "runtime/model_io/export_model.h"

#include <algorithm>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"
#include "runtime/model_io/copied_files.h"
#include "runtime/model_io/element_conversion.h"
#include "runtime/model_io/tensor_matching.h"
#include "runtime/safetensors/safetensors_writer.h"
#include "runtime/safetensors/shard_index.h"

namespace megatrain {
namespace {

constexpr int64_t kBufferBytes = int64_t{4} << 20;

std::string FileName(const std::string& path) { return path.substr(path.rfind('/') + 1); }

std::string ParentOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
}

class StoredWeights final : public WeightSource {
 public:
  explicit StoredWeights(HostStore& store) : store_(store) {}

  absl::StatusOr<int64_t> Encode(int unit, int64_t first_element, TensorDtype dtype,
                                 std::span<char> bytes) override {
    const HostStore::Access access = store_.BeginAccess(unit);
    return EncodeElements(dtype, store_.hi(unit) + first_element, store_.lo(unit) + first_element,
                          static_cast<int64_t>(bytes.size()) / SizeBytes(dtype), bytes.data());
  }

 private:
  HostStore& store_;
};

// One export into one folder.
class Exporter {
 public:
  Exporter(const ModelFolder& source, WeightSource& weights, std::string folder,
           FileSystem& file_system, const ByteProgress& progress)
      : source_(source),
        weights_(weights),
        folder_(std::move(folder)),
        file_system_(file_system),
        progress_(progress),
        buffer_(kBufferBytes) {}

  absl::Status Run(const std::vector<MatchedShard>& shards) {
    MT_RETURN_IF_ERROR(file_system_.MakeFolders(folder_));
    for (const MatchedShard& shard : shards) {
      MT_RETURN_IF_ERROR(WriteShard(shard));
    }
    if (source_.has_index()) {
      MT_RETURN_IF_ERROR(WriteIndex(shards));
    }
    MT_RETURN_IF_ERROR(CopyModelFiles(source_.path(), folder_, buffer_, file_system_));
    return file_system_.SyncFolder(folder_);
  }

 private:
  absl::Status WriteShard(const MatchedShard& shard) {
    const std::string path = absl::StrCat(folder_, "/", FileName(shard.file->path()));
    MT_ASSIGN_OR_RETURN(std::unique_ptr<SafetensorsWriter> writer,
                        SafetensorsWriter::Create(path, shard.file->header(), file_system_));
    for (const MatchedTensor& matched : shard.tensors) {
      MT_RETURN_IF_ERROR(WriteTensor(*shard.file, matched, *writer));
    }
    return writer->Finish();
  }

  absl::Status WriteTensor(const SafetensorsFile& file, const MatchedTensor& matched,
                           SafetensorsWriter& writer) {
    const TensorEntry& entry = *matched.entry;
    for (int64_t offset = 0; offset < entry.size_bytes; offset += kBufferBytes) {
      const std::span<char> piece =
          std::span(buffer_).first(std::min(kBufferBytes, entry.size_bytes - offset));
      MT_RETURN_IF_ERROR(matched.tensor == nullptr ? file.Read(entry, offset, piece)
                                                   : Encode(matched, offset, piece));
      MT_RETURN_IF_ERROR(writer.Append({piece.data(), piece.size()}));
      done_bytes_ += static_cast<int64_t>(piece.size());
      MT_RETURN_IF_ERROR(TellProgress(progress_, done_bytes_, source_.WeightBytes()));
    }
    return absl::OkStatus();
  }

  absl::Status Encode(const MatchedTensor& matched, int64_t offset_bytes, std::span<char> piece) {
    const TensorDtype dtype = matched.entry->dtype;
    const int64_t first = offset_bytes / SizeBytes(dtype);
    const int64_t place = matched.tensor->offset_elements + first;
    MT_ASSIGN_OR_RETURN(const int64_t nonfinite,
                        weights_.Encode(matched.unit, place, dtype, piece));
    if (nonfinite < 0) {
      return absl::OkStatus();
    }
    return absl::FailedPreconditionError(
        absl::StrCat("cannot export tensor \"", matched.entry->name, "\": element ",
                     first + nonfinite, " is not finite as ", TensorDtypeName(dtype)));
  }

  absl::Status WriteIndex(const std::vector<MatchedShard>& shards) {
    ShardIndex index;
    for (const MatchedShard& shard : shards) {
      for (const MatchedTensor& matched : shard.tensors) {
        index.file_of[matched.entry->name] = FileName(shard.file->path());
      }
    }
    const std::string path = absl::StrCat(folder_, "/", kShardIndexName);
    MT_ASSIGN_OR_RETURN(std::unique_ptr<WritableFile> file,
                        file_system_.OpenForWriting(path, /*append=*/false));
    MT_RETURN_IF_ERROR(file->Append(SerializeShardIndex(index, source_.WeightBytes())));
    MT_RETURN_IF_ERROR(file->Sync());
    return file->Close();
  }

  const ModelFolder& source_;
  WeightSource& weights_;
  const std::string folder_;
  FileSystem& file_system_;
  const ByteProgress& progress_;
  int64_t done_bytes_ = 0;
  std::vector<char> buffer_;
};

absl::Status CheckRoom(const std::string& parent, int64_t needed_bytes, FileSystem& file_system) {
  MT_ASSIGN_OR_RETURN(const int64_t available_bytes, file_system.AvailableBytes(parent));
  if (available_bytes >= needed_bytes) {
    return absl::OkStatus();
  }
  return absl::ResourceExhaustedError(absl::StrCat("no room for the exported model in ", parent,
                                                   ": ", needed_bytes, " bytes needed, ",
                                                   available_bytes, " available"));
}

absl::Status WriteAndRename(Exporter& exporter, const std::vector<MatchedShard>& shards,
                            const std::string& partial, const std::string& output,
                            FileSystem& file_system) {
  MT_RETURN_IF_ERROR(exporter.Run(shards));
  MT_RETURN_IF_ERROR(file_system.Rename(partial, output));
  return file_system.SyncFolder(ParentOf(output));
}

}  // namespace

absl::Status ExportModel(const ModelFolder& source, const ModelLayout& layout,
                         WeightSource& weights, std::string output, FileSystem& file_system,
                         const ByteProgress& progress) {
  while (output.size() > 1 && output.ends_with('/')) {
    output.pop_back();
  }
  if (output.empty()) {
    return absl::InvalidArgumentError("no folder to export to was given");
  }
  if (file_system.Exists(output)) {
    return absl::AlreadyExistsError(absl::StrCat("cannot export to ", output, ": it exists"));
  }
  MT_ASSIGN_OR_RETURN(const std::vector<MatchedShard> shards, MatchTensors(source, layout));
  MT_RETURN_IF_ERROR(file_system.MakeFolders(ParentOf(output)));
  MT_RETURN_IF_ERROR(CheckRoom(ParentOf(output), source.WeightBytes(), file_system));
  const std::string partial = output + ".partial";
  MT_RETURN_IF_ERROR(file_system.RemoveTree(partial));
  Exporter exporter(source, weights, partial, file_system, progress);
  absl::Status status = WriteAndRename(exporter, shards, partial, output, file_system);
  if (!status.ok()) {
    // All are complaints about the same disk; the first says most. What is in place may not last.
    file_system.RemoveTree(partial).IgnoreError();
    file_system.RemoveTree(output).IgnoreError();
  }
  return status;
}

absl::Status ExportModel(const ModelFolder& source, const ModelLayout& layout, HostStore& store,
                         std::string output, FileSystem& file_system,
                         const ByteProgress& progress) {
  StoredWeights weights(store);
  return ExportModel(source, layout, weights, std::move(output), file_system, progress);
}

}  // namespace megatrain
