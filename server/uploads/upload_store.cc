#include "server/uploads/upload_store.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/crc32c.h"
#include "runtime/base/status_macros.h"
#include "server/database/request_log.h"
#include "server/errors/errors.h"
#include "server/files/hash_file.h"
#include "server/names/resource_name.h"
#include "server/resources/resource_table.h"
#include "server/resources/timestamp.h"

namespace megatrain {
namespace {

constexpr char kCollection[] = "uploads";

// What a crash can cost a client, against one sync and one commit of the database for each.
constexpr int64_t kCommitEveryBytes = int64_t{16} << 20;

bool IsExpired(const v1::Upload& upload, absl::Time now) {
  return TimeOf(upload.expire_time()) <= now;
}

int StateOf(const v1::Upload& upload) { return upload.finalized() ? 1 : 0; }

absl::Status WrongOffset(const v1::Upload& upload, int64_t offset_bytes) {
  return WithReason(
      absl::OutOfRangeError(absl::StrCat(upload.name(), " has ", upload.committed_bytes(),
                                         " bytes, but the data starts at byte ", offset_bytes,
                                         ": send from byte ", upload.committed_bytes(), " on")),
      "WRONG_OFFSET",
      {{"committed_bytes", std::to_string(upload.committed_bytes())},
       {"offset_bytes", std::to_string(offset_bytes)},
       {"upload", upload.name()}});
}

absl::Status Incomplete(const v1::Upload& upload) {
  return PreconditionFailed(
      upload.name(), "UPLOAD_INCOMPLETE",
      absl::StrCat(upload.name(), " has ", upload.committed_bytes(), " of ", upload.size_bytes(),
                   " bytes: send the rest before it is finalized"),
      {{"committed_bytes", std::to_string(upload.committed_bytes())},
       {"size_bytes", std::to_string(upload.size_bytes())}});
}

absl::Status CheckPiece(const v1::Upload& upload, int64_t offset_bytes, std::string_view data,
                        uint32_t crc32c) {
  const auto size_bytes = static_cast<int64_t>(data.size());
  if (size_bytes > kMaxUploadPieceBytes) {
    return InvalidFields({{"data", absl::StrCat("has ", size_bytes, " bytes, at most ",
                                                kMaxUploadPieceBytes, " are taken at once")}});
  }
  if (size_bytes > upload.size_bytes() - offset_bytes) {
    return InvalidFields({{"data", absl::StrCat("ends at byte ", offset_bytes + size_bytes,
                                                " of a file of ", upload.size_bytes(), " bytes")}});
  }
  if (Crc32c(data) != crc32c) {
    return InvalidFields(
        {{"crc32c", absl::StrCat("is not the CRC-32C of data at byte ", offset_bytes,
                                 ": the data was damaged on its way, send it again")}});
  }
  return absl::OkStatus();
}

}  // namespace

UploadStore::Writer::Writer(UploadStore* store, v1::Upload upload,
                            std::unique_ptr<WritableFile> file)
    : store_(store),
      upload_(std::move(upload)),
      file_(std::move(file)),
      written_bytes_(upload_.committed_bytes()) {}

UploadStore::Writer::~Writer() {
  file_.reset();
  store_->EndWriting(upload_.name());
}

absl::Status UploadStore::Writer::Append(int64_t offset_bytes, std::string_view data,
                                         uint32_t crc32c) {
  if (offset_bytes != written_bytes_) {
    MT_RETURN_IF_ERROR(Commit().status());
    return WrongOffset(upload_, offset_bytes);
  }
  MT_RETURN_IF_ERROR(CheckPiece(upload_, offset_bytes, data, crc32c));
  MT_RETURN_IF_ERROR(write_status_);
  write_status_ = file_->Append(data);
  MT_RETURN_IF_ERROR(write_status_);
  written_bytes_ += static_cast<int64_t>(data.size());
  const bool is_due = written_bytes_ - upload_.committed_bytes() >= kCommitEveryBytes ||
                      written_bytes_ == upload_.size_bytes();
  return is_due ? Commit().status() : absl::OkStatus();
}

absl::StatusOr<v1::Upload> UploadStore::Writer::Commit() {
  if (written_bytes_ != upload_.committed_bytes()) {
    MT_RETURN_IF_ERROR(file_->Sync());
    v1::Upload committed = upload_;
    committed.set_committed_bytes(written_bytes_);
    MT_RETURN_IF_ERROR(store_->Save(committed));
    upload_ = std::move(committed);
  }
  return upload_;
}

UploadStore::UploadStore(Database& database, FileSystem& disk, const Clock& clock, Options options)
    : database_(database), disk_(disk), clock_(clock), options_(std::move(options)) {}

absl::StatusOr<std::unique_ptr<UploadStore>> UploadStore::Open(Database& database, FileSystem& disk,
                                                               const Clock& clock,
                                                               Options options) {
  MT_RETURN_IF_ERROR(disk.MakeFolders(options.folder));
  std::unique_ptr<UploadStore> store(new UploadStore(database, disk, clock, std::move(options)));
  MT_RETURN_IF_ERROR(store->RemoveExpired());
  MT_RETURN_IF_ERROR(store->RemoveStrays());
  return store;
}

absl::Status UploadStore::RemoveStrays() {
  MT_ASSIGN_OR_RETURN(const std::vector<std::string> files, disk_.ListFolder(options_.folder));
  for (const std::string& file : files) {
    const absl::Status found = Get(absl::StrCat(kCollection, "/", file)).status();
    if (absl::IsNotFound(found)) {
      MT_RETURN_IF_ERROR(disk_.RemoveTree(absl::StrCat(options_.folder, "/", file)));
    } else {
      MT_RETURN_IF_ERROR(found);
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<v1::Upload> UploadStore::Start(const RequestKey& key, int64_t size_bytes,
                                              const std::string& sha256) {
  MT_RETURN_IF_ERROR(RemoveExpired());
  MT_ASSIGN_OR_RETURN(
      const std::string answer,
      WriteOnce(database_, key, clock_.WallNow(),
                [&](Connection& connection) -> absl::StatusOr<std::string> {
                  MT_ASSIGN_OR_RETURN(const auto finalized,
                                      ListResources<v1::Upload>(
                                          connection, {.collection = kCollection, .states = {1}}));
                  for (const auto& [number, upload] : finalized) {
                    if (upload.sha256() == sha256 && upload.size_bytes() == size_bytes) {
                      return upload.SerializeAsString();
                    }
                  }
                  MT_ASSIGN_OR_RETURN(const v1::Upload upload,
                                      Insert(connection, size_bytes, sha256));
                  return upload.SerializeAsString();
                }));
  return ParseStored<v1::Upload>(answer);
}

absl::StatusOr<v1::Upload> UploadStore::Insert(Connection& connection, int64_t size_bytes,
                                               const std::string& sha256) {
  MT_ASSIGN_OR_RETURN(const int64_t available_bytes, disk_.AvailableBytes(options_.folder));
  if (size_bytes > available_bytes) {
    return WithReason(absl::ResourceExhaustedError(absl::StrCat(
                          "the file has ", size_bytes, " bytes, the server's disk has room for ",
                          available_bytes, ": make room on ", options_.folder)),
                      "DISK_FULL",
                      {{"size_bytes", std::to_string(size_bytes)},
                       {"available_bytes", std::to_string(available_bytes)},
                       {"folder", options_.folder}});
  }
  v1::Upload upload;
  upload.set_name(absl::StrCat(kCollection, "/", NewResourceId("upload")));
  upload.set_size_bytes(size_bytes);
  upload.set_sha256(sha256);
  *upload.mutable_create_time() = TimestampOf(clock_.WallNow());
  *upload.mutable_expire_time() = TimestampOf(clock_.WallNow() + options_.lifetime);
  // The file comes first: a row always has one, a file without a row is removed at the next start.
  MT_ASSIGN_OR_RETURN(const auto file, disk_.OpenForWriting(PathOf(upload.name()), false));
  MT_RETURN_IF_ERROR(file->Close());
  MT_RETURN_IF_ERROR(disk_.SyncFolder(options_.folder));
  MT_RETURN_IF_ERROR(
      InsertResource(connection, kCollection, upload.name(), StateOf(upload), upload));
  return upload;
}

absl::StatusOr<v1::Upload> UploadStore::Get(const std::string& name) {
  v1::Upload upload;
  MT_RETURN_IF_ERROR(database_.Read([&](Connection& connection) -> absl::Status {
    MT_ASSIGN_OR_RETURN(upload, FindResource<v1::Upload>(connection, name));
    return absl::OkStatus();
  }));
  return upload;
}

absl::StatusOr<std::unique_ptr<UploadStore::Writer>> UploadStore::OpenWriter(
    const std::string& name) {
  {
    MutexLock lock(&mutex_);
    if (!busy_.insert(name).second) {
      return WithReason(absl::AbortedError(absl::StrCat(
                            name, " is being written by another stream: end that one first")),
                        "UPLOAD_BUSY", {{"upload", name}});
    }
  }
  absl::StatusOr<std::unique_ptr<Writer>> writer = MakeWriter(name);
  if (!writer.ok()) {
    EndWriting(name);
  }
  return writer;
}

absl::StatusOr<std::unique_ptr<UploadStore::Writer>> UploadStore::MakeWriter(
    const std::string& name) {
  MT_ASSIGN_OR_RETURN(v1::Upload upload, Get(name));
  MT_ASSIGN_OR_RETURN(std::unique_ptr<WritableFile> file, OpenFile(upload));
  return std::unique_ptr<Writer>(new Writer(this, std::move(upload), std::move(file)));
}

absl::StatusOr<std::unique_ptr<WritableFile>> UploadStore::OpenFile(const v1::Upload& upload) {
  if (upload.finalized()) {
    return PreconditionFailed(upload.name(), "UPLOAD_FINALIZED",
                              absl::StrCat(upload.name(), " is complete and takes no more data"));
  }
  const std::string path = PathOf(upload.name());
  MT_ASSIGN_OR_RETURN(const int64_t size_bytes, disk_.FileSize(path));
  if (size_bytes < upload.committed_bytes()) {
    return absl::DataLossError(absl::StrCat(path, " has ", size_bytes, " bytes where ",
                                            upload.committed_bytes(),
                                            " were synced: start a new upload"));
  }
  // Behind the committed bytes may lie what a crash left.
  MT_RETURN_IF_ERROR(disk_.Truncate(path, upload.committed_bytes()));
  return disk_.OpenForWriting(path, /*append=*/true);
}

absl::StatusOr<v1::Upload> UploadStore::Finalize(const std::string& name) {
  MT_ASSIGN_OR_RETURN(v1::Upload upload, Get(name));
  if (upload.finalized()) return upload;
  if (upload.committed_bytes() != upload.size_bytes()) return Incomplete(upload);
  // A writer holds the file as it is until then, and finds it finalized afterwards.
  MT_ASSIGN_OR_RETURN(const std::unique_ptr<Writer> writer, OpenWriter(name));
  MT_ASSIGN_OR_RETURN(const std::string sha256, HashFile(PathOf(name)));
  if (sha256 != upload.sha256()) {
    MT_RETURN_IF_ERROR(Remove(name));
    return WithReason(absl::InvalidArgumentError(
                          absl::StrCat(name, " has the sha256 ", sha256, " where ", upload.sha256(),
                                       " was announced; it was dropped: send the file again")),
                      "SHA256_MISMATCH",
                      {{"upload", name}, {"sha256", sha256}, {"announced", upload.sha256()}});
  }
  upload.set_finalized(true);
  MT_RETURN_IF_ERROR(Save(upload));
  return upload;
}

std::string UploadStore::PathOf(const std::string& name) const {
  return absl::StrCat(options_.folder, name.substr(sizeof(kCollection) - 1));
}

absl::Status UploadStore::Remove(const std::string& name) {
  MT_RETURN_IF_ERROR(database_.Write(
      [&name](Connection& connection) { return DeleteResource(connection, name); }));
  return disk_.RemoveTree(PathOf(name));
}

absl::StatusOr<std::vector<Numbered<v1::Upload>>> UploadStore::List() {
  std::vector<Numbered<v1::Upload>> uploads;
  MT_RETURN_IF_ERROR(database_.Read([&](Connection& connection) -> absl::Status {
    MT_ASSIGN_OR_RETURN(uploads,
                        ListResources<v1::Upload>(connection, {.collection = kCollection}));
    return absl::OkStatus();
  }));
  return uploads;
}

absl::Status UploadStore::RemoveContent(const std::string& sha256) {
  MT_ASSIGN_OR_RETURN(const auto uploads, List());
  for (const auto& [number, upload] : uploads) {
    if (upload.finalized() && upload.sha256() == sha256) {
      MT_RETURN_IF_ERROR(Remove(upload.name()));
    }
  }
  return absl::OkStatus();
}

absl::Status UploadStore::RemoveExpired() {
  MT_ASSIGN_OR_RETURN(const auto uploads, List());
  for (const auto& [number, upload] : uploads) {
    if (!IsExpired(upload, clock_.WallNow())) continue;
    {
      MutexLock lock(&mutex_);
      if (busy_.count(upload.name()) != 0) continue;
    }
    MT_RETURN_IF_ERROR(Remove(upload.name()));
  }
  return absl::OkStatus();
}

absl::Status UploadStore::Save(const v1::Upload& upload) {
  return database_.Write([&upload](Connection& connection) {
    return UpdateResource(connection, upload.name(), StateOf(upload), upload);
  });
}

void UploadStore::EndWriting(const std::string& name) {
  MutexLock lock(&mutex_);
  busy_.erase(name);
}

}  // namespace megatrain
