#include "client/lib/upload.h"

#include <algorithm>
#include <fstream>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/lib/error_text.h"
#include "client/lib/file_digest.h"
#include "client/lib/random.h"
#include "megatrain/v1/upload_service.grpc.pb.h"
#include "runtime/base/crc32c.h"
#include "runtime/base/status_macros.h"

namespace megatrain {
namespace {

using Stub = v1::UploadService::Stub;

constexpr int64_t kChunkBytes = int64_t{1} << 20;

absl::StatusOr<v1::Upload> Get(Connection& connection, const std::string& name) {
  v1::GetUploadRequest request;
  request.set_name(name);
  return connection.Call(CallKind::kRead, &Stub::GetUpload, request);
}

// The upload as it is now. Its request's ID belongs to the file's content, so that a repeat finds
// what an interrupted process began; one that has expired since is begun anew.
absl::StatusOr<v1::Upload> Start(Connection& connection, const FileDigest& digest) {
  v1::StartUploadRequest request;
  request.set_size_bytes(digest.size_bytes);
  request.set_sha256(digest.sha256);
  request.set_request_id(RequestIdFor(absl::StrCat("upload ", digest.size_bytes, digest.sha256)));
  MT_ASSIGN_OR_RETURN(v1::Upload upload,
                      connection.Call(CallKind::kWrite, &Stub::StartUpload, request));
  absl::StatusOr<v1::Upload> present = Get(connection, upload.name());
  if (present.ok() || present.status().code() != absl::StatusCode::kNotFound) {
    return present;
  }
  request.set_request_id(NewRequestId());
  return connection.Call(CallKind::kWrite, &Stub::StartUpload, request);
}

class Sender {
 public:
  Sender(Connection& connection, const std::string& path, const v1::Upload& upload,
         UploadSink& sink)
      : connection_(connection), path_(path), upload_(upload), sink_(sink) {}

  absl::Status Run() {
    for (int failures = 0; upload_.committed_bytes() < upload_.size_bytes();) {
      MT_RETURN_IF_ERROR(connection_.CheckContinue());
      const absl::Status sent = SendOnce();
      if (!sent.ok() && sent.code() != absl::StatusCode::kUnavailable &&
          sent.code() != absl::StatusCode::kOutOfRange) {
        return sent;
      }
      MT_ASSIGN_OR_RETURN(const bool advanced, Refresh());
      failures = advanced ? 0 : failures + 1;
      if (failures >= connection_.options().attempts) {
        return sent.ok() ? absl::InternalError("the server takes no bytes of the upload")
                         : connection_.Explain(sent, absl::ZeroDuration());
      }
      if (!sent.ok()) {
        connection_.interruption().WaitFor(Connection::Backoff(
            failures + 1, connection_.options().first_backoff, connection_.options().max_backoff));
        sink_.OnResumed(upload_.committed_bytes());
      }
    }
    return absl::OkStatus();
  }

 private:
  // Learns how far the upload is; true when it is further than before.
  absl::StatusOr<bool> Refresh() {
    MT_ASSIGN_OR_RETURN(v1::Upload present, Get(connection_, upload_.name()));
    const bool advanced = present.committed_bytes() > upload_.committed_bytes();
    upload_ = std::move(present);
    return advanced;
  }

  // One stream, from what is committed to the file's end.
  absl::Status SendOnce() {
    std::ifstream file(path_, std::ios::binary);
    file.seekg(upload_.committed_bytes());
    grpc::ClientContext context;
    v1::Upload answer;
    const auto writer = connection_.stub<Stub>().WriteUpload(&context, &answer);
    v1::WriteUploadRequest chunk;
    chunk.set_name(upload_.name());
    bool open = true;
    for (int64_t offset = upload_.committed_bytes(); open && offset < upload_.size_bytes();) {
      if (!ReadChunk(file, offset, chunk) || connection_.interruption().triggered()) {
        context.TryCancel();
        writer->Finish();
        MT_RETURN_IF_ERROR(connection_.CheckContinue());
        return absl::FailedPreconditionError(
            absl::StrCat(path_, " has become shorter while it was sent"));
      }
      open = writer->Write(chunk);
      chunk.clear_name();
      offset += static_cast<int64_t>(chunk.data().size());
      sink_.OnSent(offset, upload_.size_bytes());
    }
    writer->WritesDone();
    return StatusFromRpc(writer->Finish());
  }

  bool ReadChunk(std::ifstream& file, int64_t offset, v1::WriteUploadRequest& chunk) const {
    const int64_t wanted = std::min(kChunkBytes, upload_.size_bytes() - offset);
    chunk.mutable_data()->resize(static_cast<size_t>(wanted));
    file.read(chunk.mutable_data()->data(), wanted);
    chunk.set_offset_bytes(offset);
    chunk.set_crc32c(Crc32c(chunk.data()));
    return file.gcount() == wanted;
  }

  Connection& connection_;
  const std::string path_;
  v1::Upload upload_;
  UploadSink& sink_;
};

}  // namespace

absl::StatusOr<v1::Upload> UploadFile(Connection& connection, const std::string& path,
                                      UploadSink& sink) {
  MT_ASSIGN_OR_RETURN(const FileDigest digest,
                      DigestFile(path, [&](int64_t bytes) { sink.OnHashed(bytes); }));
  MT_ASSIGN_OR_RETURN(v1::Upload upload, Start(connection, digest));
  if (upload.finalized()) {
    sink.OnKnown();
    return upload;
  }
  if (upload.committed_bytes() > 0) {
    sink.OnResumed(upload.committed_bytes());
  }
  MT_RETURN_IF_ERROR(Sender(connection, path, upload, sink).Run());
  v1::FinalizeUploadRequest request;
  request.set_name(upload.name());
  return connection.Call(CallKind::kLongWrite, &Stub::FinalizeUpload, request);
}

}  // namespace megatrain
