#include "client/lib/download.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "client/lib/error_text.h"
#include "client/lib/folder_lock.h"
#include "client/lib/message_stream.h"
#include "client/lib/random.h"
#include "megatrain/v1/checkpoint_service.grpc.pb.h"
#include "runtime/base/crc32c.h"
#include "runtime/base/sha256.h"
#include "runtime/base/status_macros.h"

namespace megatrain {
namespace {

using Stub = v1::CheckpointService::Stub;

constexpr size_t kPieceBytes = size_t{1} << 20;

// Whether it stays below the folder that it is put into.
bool IsInside(const std::string& path) {
  for (const absl::string_view part : absl::StrSplit(path, '/')) {
    if (part.empty() || part == "." || part == "..") {
      return false;
    }
  }
  return path.find('\0') == std::string::npos;
}

absl::Status CheckPaths(const v1::Checkpoint& checkpoint) {
  std::set<std::string> paths;
  for (const v1::CheckpointFile& file : checkpoint.files()) {
    if (!IsInside(file.path()) || file.size_bytes() < 0 || !paths.insert(file.path()).second) {
      return absl::InternalError(absl::StrCat(checkpoint.name(), ": the server tells of a file \"",
                                              file.path(), "\", which no checkpoint has"));
    }
  }
  return absl::OkStatus();
}

// What is there of a file, from its beginning on.
class Content {
 public:
  // Of what is to be `file` in the end.
  explicit Content(const v1::CheckpointFile& file) : file_(file) {
    if (!file.sha256().empty()) {
      sha256_.emplace();
    }
  }

  void Add(std::string_view bytes) {
    size_bytes_ += static_cast<int64_t>(bytes.size());
    crc32c_ = ExtendCrc32c(crc32c_, bytes);
    if (sha256_) {
      sha256_->Update(bytes);
    }
  }

  int64_t size_bytes() const { return size_bytes_; }
  int64_t missing_bytes() const { return file_.size_bytes() - size_bytes_; }

  // When nothing is missing; the last call.
  bool IsSound() {
    return crc32c_ == file_.crc32c() && (!sha256_ || sha256_->HexDigest() == file_.sha256());
  }

 private:
  const v1::CheckpointFile& file_;
  int64_t size_bytes_ = 0;
  uint32_t crc32c_ = 0;  // of nothing
  std::optional<Sha256> sha256_;
};

// When to give up: streams in a row that brought nothing, over some time.
class Patience {
 public:
  explicit Patience(const Connection& connection)
      : connection_(connection), last_advance_(connection.clock().MonotonicNow()) {}

  // After a stream.
  bool IsOver(bool advanced) {
    const absl::Duration now = connection_.clock().MonotonicNow();
    failures_ = advanced ? 0 : failures_ + 1;
    last_advance_ = advanced ? now : last_advance_;
    return failures_ >= connection_.options().attempts &&
           now - last_advance_ >= connection_.options().patience;
  }

  void Pause() const {
    connection_.interruption().WaitFor(Connection::Backoff(
        failures_ + 1, connection_.options().first_backoff, connection_.options().max_backoff));
  }

 private:
  const Connection& connection_;
  absl::Duration last_advance_;  // on the monotonic clock
  int failures_ = 0;
};

class Downloader {
 public:
  Downloader(Connection& connection, FileSystem& files, const v1::Checkpoint& checkpoint,
             DownloadSink& sink, const DownloadOptions& options)
      : connection_(connection),
        files_(files),
        checkpoint_(checkpoint),
        sink_(sink),
        options_(options) {
    for (const v1::CheckpointFile& file : checkpoint.files()) {
      size_bytes_ += file.size_bytes();
    }
  }

  // Fills `folder`, which exists, and makes it durable.
  absl::Status Run(const std::string& folder) {
    MT_RETURN_IF_ERROR(LookForRoom(folder));
    std::set<std::string> folders = {folder};
    for (const v1::CheckpointFile& file : checkpoint_.files()) {
      const std::string path = absl::StrCat(folder, "/", file.path());
      for (std::filesystem::path parent = std::filesystem::path(path).parent_path();
           folders.insert(parent.string()).second; parent = parent.parent_path()) {
      }
      MT_RETURN_IF_ERROR(files_.MakeFolders(std::filesystem::path(path).parent_path().string()));
      MT_RETURN_IF_ERROR(Fetch(file, path));
    }
    for (const std::string& made : folders) {
      MT_RETURN_IF_ERROR(files_.SyncFolder(made));
    }
    return absl::OkStatus();
  }

 private:
  // Before hours of work end at a full disk.
  absl::Status LookForRoom(const std::string& folder) {
    int64_t present_bytes = 0;
    for (const v1::CheckpointFile& file : checkpoint_.files()) {
      const absl::StatusOr<int64_t> size = files_.FileSize(absl::StrCat(folder, "/", file.path()));
      present_bytes += size.ok() ? std::min(*size, file.size_bytes()) : 0;
    }
    MT_ASSIGN_OR_RETURN(const int64_t free_bytes, files_.AvailableBytes(folder));
    const int64_t missing_bytes = size_bytes_ - present_bytes;
    if (missing_bytes > free_bytes) {
      const absl::Status full = absl::ResourceExhaustedError(
          absl::StrFormat("%s needs %.2f GiB more at %s, where %.2f GiB are free",
                          checkpoint_.name(), static_cast<double>(missing_bytes) / 0x1p30, folder,
                          static_cast<double>(free_bytes) / 0x1p30));
      return WithClientReason(
          WithHint(full, "free space and repeat the command, or name another folder"),
          "LOCAL_DISK_FULL");
    }
    if (present_bytes > 0) {
      sink_.OnResumed(present_bytes);
    }
    return absl::OkStatus();
  }

  absl::Status Fetch(const v1::CheckpointFile& file, const std::string& path) {
    for (int damaged = 0;; ++damaged) {
      Content content(file);
      MT_RETURN_IF_ERROR(TakeUp(path, file, content));
      MT_RETURN_IF_ERROR(Complete(path, file, content));
      if (content.IsSound()) {
        return absl::OkStatus();
      }
      MT_RETURN_IF_ERROR(files_.RemoveTree(path));
      received_bytes_ -= file.size_bytes();
      if (damaged > 0) {
        return WithClientReason(
            absl::DataLossError(absl::StrCat(checkpoint_.name(), ": ", file.path(),
                                             " is not what its checksum says, twice")),
            "CHECKPOINT_CORRUPT");
      }
      sink_.OnDamaged(file.path());
    }
  }

  // Takes what an earlier process has left of the file.
  absl::Status TakeUp(const std::string& path, const v1::CheckpointFile& file, Content& content) {
    const absl::StatusOr<int64_t> size = files_.FileSize(path);
    if (size.ok() && *size > file.size_bytes()) {
      MT_RETURN_IF_ERROR(files_.RemoveTree(path));
    }
    std::ifstream left(path, std::ios::binary);
    std::vector<char> piece(kPieceBytes);
    while (left) {
      MT_RETURN_IF_ERROR(connection_.CheckContinue());
      left.read(piece.data(), static_cast<std::streamsize>(piece.size()));
      Count({piece.data(), static_cast<size_t>(left.gcount())}, content);
    }
    const absl::StatusOr<int64_t> there = files_.FileSize(path);
    const bool was_read = !there.ok() || *there == content.size_bytes();
    return was_read ? absl::OkStatus() : files_.Truncate(path, content.size_bytes());
  }

  void Count(std::string_view bytes, Content& content) {
    if (bytes.empty()) {
      return;
    }
    content.Add(bytes);
    received_bytes_ += static_cast<int64_t>(bytes.size());
    sink_.OnReceived(received_bytes_, size_bytes_);
  }

  // Appends what is missing.
  absl::Status Complete(const std::string& path, const v1::CheckpointFile& file, Content& content) {
    MT_ASSIGN_OR_RETURN(const std::unique_ptr<WritableFile> output,
                        files_.OpenForWriting(path, /*append=*/true));
    Patience patience(connection_);
    while (content.missing_bytes() > 0) {
      const int64_t missing_before = content.missing_bytes();
      absl::Status end = Receive(file, *output, content);
      if (!end.ok() && end.code() != absl::StatusCode::kUnavailable) {
        return end;
      }
      if (patience.IsOver(content.missing_bytes() < missing_before)) {
        return end.ok() ? absl::InternalError(absl::StrCat("the server gives no more of ",
                                                           checkpoint_.name(), "/", file.path()))
                        : connection_.Explain(end, absl::ZeroDuration());
      }
      if (!end.ok()) {
        patience.Pause();
        sink_.OnResumed(received_bytes_);
      }
    }
    MT_RETURN_IF_ERROR(output->Sync());
    return output->Close();
  }

  // One stream, from what is there to the file's end.
  absl::Status Receive(const v1::CheckpointFile& file, WritableFile& output, Content& content) {
    using Stream = MessageStream<v1::ReadCheckpointResponse>;
    v1::ReadCheckpointRequest request;
    request.set_name(checkpoint_.name());
    request.set_path(file.path());
    request.set_offset_bytes(content.size_bytes());
    const Clock& clock = connection_.clock();
    Stream stream(
        [&](grpc::ClientContext* context, grpc::CompletionQueue* queue) {
          return connection_.stub<Stub>().PrepareAsyncReadCheckpoint(context, request, queue);
        },
        clock);
    for (absl::Duration last_sign = clock.MonotonicNow();;) {
      MT_RETURN_IF_ERROR(connection_.CheckContinue());
      const Stream::Next next = stream.Wait(options_.tick);
      if (next == Stream::Next::kEnd) {
        return stream.status();
      }
      if (next == Stream::Next::kMessage) {
        absl::Status taken = Take(stream.message(), output, content);
        if (!taken.ok()) {
          return taken;
        }
        last_sign = clock.MonotonicNow();
      } else if (clock.MonotonicNow() - last_sign > options_.silence_limit) {
        return absl::UnavailableError(
            absl::StrCat("no byte for ", absl::FormatDuration(options_.silence_limit)));
      }
    }
  }

  // UNAVAILABLE for a piece that another stream may bring as it should be.
  absl::Status Take(const v1::ReadCheckpointResponse& piece, WritableFile& output,
                    Content& content) {
    if (piece.offset_bytes() != content.size_bytes() ||
        static_cast<int64_t>(piece.data().size()) > content.missing_bytes() ||
        Crc32c(piece.data()) != piece.crc32c()) {
      return absl::UnavailableError("a piece arrived damaged");
    }
    MT_RETURN_IF_ERROR(output.Append(piece.data()));
    Count(piece.data(), content);
    return absl::OkStatus();
  }

  Connection& connection_;
  FileSystem& files_;
  const v1::Checkpoint& checkpoint_;
  DownloadSink& sink_;
  const DownloadOptions options_;
  int64_t size_bytes_ = 0;
  int64_t received_bytes_ = 0;
};

}  // namespace

absl::StatusOr<v1::Checkpoint> DownloadCheckpoint(Connection& connection, FileSystem& files,
                                                  const std::string& name,
                                                  const std::string& folder, DownloadSink& sink,
                                                  const DownloadOptions& options) {
  if (files.Exists(folder)) {
    return WithClientReason(absl::AlreadyExistsError(absl::StrCat(folder, " exists already")),
                            "PATH_EXISTS");
  }
  v1::GetCheckpointRequest request;
  request.set_name(name);
  MT_ASSIGN_OR_RETURN(v1::Checkpoint checkpoint,
                      connection.Call(CallKind::kRead, &Stub::GetCheckpoint, request));
  MT_RETURN_IF_ERROR(CheckPaths(checkpoint));
  // One checkpoint's leftovers are never another's, also not when names are used again.
  const std::string id = RequestIdFor(absl::StrCat(checkpoint.name(), " ", checkpoint.uid()));
  const std::string partial = absl::StrCat(folder, ".partial-", id.substr(0, 8));
  MT_RETURN_IF_ERROR(files.MakeFolders(partial));
  MT_ASSIGN_OR_RETURN(const FolderLock lock, FolderLock::Take(partial));
  MT_RETURN_IF_ERROR(Downloader(connection, files, checkpoint, sink, options).Run(partial));
  MT_RETURN_IF_ERROR(files.Rename(partial, folder));
  MT_RETURN_IF_ERROR(files.SyncFolder(std::filesystem::path(folder).parent_path().string()));
  return checkpoint;
}

}  // namespace megatrain
