#include "server/api/upload_service.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"
#include "server/api/request_fields.h"
#include "server/api/request_key.h"
#include "server/api/status_conversion.h"
#include "server/errors/errors.h"

namespace megatrain {
namespace {

constexpr size_t kSha256HexDigits = 64;

absl::Status CheckName(const std::string& name) {
  std::vector<FieldViolation> violations;
  RequireName("name", name, {"uploads/*"}, violations);
  return InvalidFields(violations);
}

bool IsSha256(const std::string& text) {
  return text.size() == kSha256HexDigits && std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

// One client's stream. gRPC reads into `request_`, the executor takes it from there, and only then
// is the next read started; so all members are used by one thread at a time. A cancelled call
// fails the read that is due or comes next, which ends the stream. Deletes itself.
class WriteCall final : public grpc::ServerReadReactor<v1::WriteUploadRequest> {
 public:
  WriteCall(UnaryCalls& calls, UploadStore& uploads, grpc::CallbackServerContext* context,
            v1::Upload* response)
      : calls_(calls), uploads_(uploads), context_(context), response_(response) {
    StartRead(&request_);
  }

  void OnReadDone(bool ok) override {
    calls_.executor().Run([this, ok] { ok ? TakePiece() : End(Commit()); });
  }

  void OnDone() override { delete this; }

 private:
  void TakePiece() {
    if (const absl::Status status = TryTakePiece(); !status.ok()) {
      End(status);
    } else {
      StartRead(&request_);
    }
  }

  absl::Status TryTakePiece() {
    MT_RETURN_IF_ERROR(calls_.CheckOpen());
    if (writer_ == nullptr) {
      MT_RETURN_IF_ERROR(CheckName(request_.name()));
      name_ = request_.name();
      MT_ASSIGN_OR_RETURN(writer_, uploads_.OpenWriter(name_));
    } else if (!request_.name().empty() && request_.name() != name_) {
      return InvalidFields({{"name", absl::StrCat("is ", request_.name(), " in a stream to ", name_,
                                                  ": start another stream")}});
    }
    return writer_->Append(request_.offset_bytes(), request_.data(), request_.crc32c());
  }

  absl::Status Commit() {
    if (writer_ == nullptr) {
      return InvalidFields({{"name", "the stream had no message"}});
    }
    MT_ASSIGN_OR_RETURN(*response_, writer_->Commit());
    return context_->IsCancelled() ? absl::CancelledError("the client cancelled the call")
                                   : absl::OkStatus();
  }

  void End(const absl::Status& status) {
    // Keeps what came before an error; the error is what the client hears.
    if (writer_ != nullptr && !status.ok()) {
      writer_->Commit().status().IgnoreError();
    }
    writer_.reset();  // before the answer, which can bring the client's next stream at once
    Finish(ToGrpcStatus(status));
  }

  UnaryCalls& calls_;
  UploadStore& uploads_;
  grpc::CallbackServerContext* const context_;
  v1::Upload* const response_;
  v1::WriteUploadRequest request_;
  std::string name_;
  std::unique_ptr<UploadStore::Writer> writer_;
};

}  // namespace

grpc::ServerUnaryReactor* UploadService::StartUpload(grpc::CallbackServerContext* context,
                                                     const v1::StartUploadRequest* request,
                                                     v1::Upload* response) {
  return calls_.Mutate(context, response, [this, request = *request] { return Start(request); });
}

grpc::ServerReadReactor<v1::WriteUploadRequest>* UploadService::WriteUpload(
    grpc::CallbackServerContext* context, v1::Upload* response) {
  return new WriteCall(calls_, uploads_, context, response);
}

grpc::ServerUnaryReactor* UploadService::GetUpload(grpc::CallbackServerContext* context,
                                                   const v1::GetUploadRequest* request,
                                                   v1::Upload* response) {
  return calls_.Read(context, response,
                     [this, name = request->name()]() -> absl::StatusOr<v1::Upload> {
                       MT_RETURN_IF_ERROR(CheckName(name));
                       return uploads_.Get(name);
                     });
}

grpc::ServerUnaryReactor* UploadService::FinalizeUpload(grpc::CallbackServerContext* context,
                                                        const v1::FinalizeUploadRequest* request,
                                                        v1::Upload* response) {
  return calls_.Mutate(context, response,
                       [this, name = request->name()]() -> absl::StatusOr<v1::Upload> {
                         MT_RETURN_IF_ERROR(CheckName(name));
                         return uploads_.Finalize(name);
                       });
}

absl::StatusOr<v1::Upload> UploadService::Start(const v1::StartUploadRequest& request) {
  std::vector<FieldViolation> violations;
  if (request.size_bytes() < 0) {
    violations.push_back({"size_bytes", "is negative"});
  }
  if (!IsSha256(request.sha256())) {
    violations.push_back({"sha256", "is not 64 lower-case hex digits"});
  }
  RequireRequestId(request.request_id(), violations);
  MT_RETURN_IF_ERROR(InvalidFields(violations));
  return uploads_.Start(MakeRequestKey("StartUpload", request), request.size_bytes(),
                        request.sha256());
}

}  // namespace megatrain
