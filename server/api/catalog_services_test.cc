// Uploads, data sets and models over a real socket, with real stores, files and helper.

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "megatrain/v1/dataset_service.grpc.pb.h"
#include "megatrain/v1/model_service.grpc.pb.h"
#include "megatrain/v1/upload_service.grpc.pb.h"
#include "runtime/base/clock.h"
#include "runtime/base/crc32c.h"
#include "runtime/base/environment_for_test.h"
#include "runtime/base/posix_file_system.h"
#include "runtime/base/sha256.h"
#include "runtime/model_io/model_folder_for_test.h"
#include "server/api/dataset_service.h"
#include "server/api/model_service.h"
#include "server/api/status_for_test.h"
#include "server/api/upload_service.h"
#include "server/database/request_log.h"
#include "server/errors/errors.h"

namespace megatrain {
namespace {

using ::testing::HasSubstr;

constexpr char kRow[] =
    R"({"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"}]})"
    "\n";

std::string HashText(const std::string& text) {
  Sha256 hash;
  hash.Update(text);
  return hash.HexDigest();
}

class CatalogServicesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string name = ::testing::UnitTest::GetInstance()->current_test_info()->name();
    folder_ = std::filesystem::canonical(::testing::TempDir()).string() + "/" + name;
    std::filesystem::create_directories(folder_ + "/allowed");
    database_ = *Database::Open(folder_ + "/db", {RequestLogMigration(), ResourceTableMigration()});
    uploads_ = *UploadStore::Open(*database_, disk_, clock_, {.folder = folder_ + "/uploads"});
    preparer_ = std::make_unique<DataPreparer>(
        clock_, DataPreparer::Options{.archive = "server/datasets/prepare/prepare.zip",
                                      .python_path = EnvironmentForTest("MEGATRAIN_DEPS")});
    datasets_ = *DatasetStore::Open({*database_, disk_, clock_, *uploads_, *preparer_},
                                    {.datasets_folder = folder_ + "/datasets",
                                     .prepared_folder = folder_ + "/prepared",
                                     .staging_folder = folder_ + "/tmp/prepare"});
    models_ =
        *ModelStore::Open({*database_, disk_, clock_}, {.models_folder = folder_ + "/models",
                                                        .staging_folder = folder_ + "/tmp/import",
                                                        .allowed_paths = {folder_ + "/allowed"}});
    upload_service_ = std::make_unique<UploadService>(calls_, *uploads_);
    dataset_service_ = std::make_unique<DatasetService>(calls_, *datasets_);
    model_service_ = std::make_unique<ModelService>(
        calls_, calls_, *models_,
        [](const RequestKey&, const std::string& name, const std::string&, const ByteProgress&)
            -> absl::StatusOr<v1::ModelVersion> { return ResourceNotFound(name); });
    StartServer();
  }

  void StartServer() {
    int port = 0;
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(upload_service_.get());
    builder.RegisterService(dataset_service_.get());
    builder.RegisterService(model_service_.get());
    server_ = builder.BuildAndStart();
    const auto channel = grpc::CreateChannel("127.0.0.1:" + std::to_string(port),
                                             grpc::InsecureChannelCredentials());
    uploads = v1::UploadService::NewStub(channel);
    datasets = v1::DatasetService::NewStub(channel);
    models = v1::ModelService::NewStub(channel);
  }

  void TearDown() override {
    server_->Shutdown();
    server_->Wait();
  }

  // One unary call.
  template <typename Stub, typename Request, typename Response>
  static absl::Status Call(Stub& stub,
                           grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&,
                                                        Response*),
                           const Request& request, Response* response) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
    return FromGrpcStatus((stub.*method)(&context, request, response));
  }

  v1::Upload Start(const std::string& text) {
    v1::StartUploadRequest request;
    request.set_size_bytes(static_cast<int64_t>(text.size()));
    request.set_sha256(HashText(text));
    v1::Upload upload;
    const absl::Status status =
        Call(*uploads, &v1::UploadService::Stub::StartUpload, request, &upload);
    EXPECT_TRUE(status.ok()) << status;
    return upload;
  }

  static v1::WriteUploadRequest Piece(const std::string& name, int64_t offset_bytes,
                                      const std::string& data) {
    v1::WriteUploadRequest request;
    request.set_name(name);
    request.set_offset_bytes(offset_bytes);
    request.set_data(data);
    request.set_crc32c(Crc32c(data));
    return request;
  }

  // A whole stream of `pieces`.
  absl::Status Write(const std::vector<v1::WriteUploadRequest>& pieces, v1::Upload* upload) {
    grpc::ClientContext context;
    const auto stream = uploads->WriteUpload(&context, upload);
    for (const auto& piece : pieces) {
      if (!stream->Write(piece)) break;
    }
    stream->WritesDone();
    return FromGrpcStatus(stream->Finish());
  }

  absl::Status Finalize(const std::string& name, v1::Upload* upload) {
    v1::FinalizeUploadRequest request;
    request.set_name(name);
    return Call(*uploads, &v1::UploadService::Stub::FinalizeUpload, request, upload);
  }

  int64_t CommittedBytes(const std::string& name) {
    v1::GetUploadRequest request;
    request.set_name(name);
    v1::Upload upload;
    EXPECT_TRUE(Call(*uploads, &v1::UploadService::Stub::GetUpload, request, &upload).ok());
    return upload.committed_bytes();
  }

  std::string UploadText(const std::string& text) {
    v1::Upload upload = Start(text);
    if (!upload.finalized()) {
      EXPECT_TRUE(Write({Piece(upload.name(), 0, text)}, &upload).ok());
      EXPECT_TRUE(Finalize(upload.name(), &upload).ok());
    }
    return upload.name();
  }

  absl::Status CreateDataset(const v1::CreateDatasetRequest& request, v1::Dataset* dataset) {
    return Call(*datasets, &v1::DatasetService::Stub::CreateDataset, request, dataset);
  }

  v1::Dataset WaitForDataset(const std::string& name) {
    v1::GetDatasetRequest request;
    request.set_name(name);
    v1::Dataset dataset;
    do {
      std::this_thread::yield();
      EXPECT_TRUE(Call(*datasets, &v1::DatasetService::Stub::GetDataset, request, &dataset).ok());
    } while (dataset.state() == v1::DATASET_STATE_CHECKING);
    return dataset;
  }

  v1::ModelVersion WaitForModel(const std::string& name) {
    v1::GetModelVersionRequest request;
    request.set_name(name);
    v1::ModelVersion version;
    do {
      std::this_thread::yield();
      EXPECT_TRUE(Call(*models, &v1::ModelService::Stub::GetModelVersion, request, &version).ok());
    } while (version.state() == v1::MODEL_STATE_IMPORTING);
    return version;
  }

  std::string folder_;
  SystemClock clock_;
  PosixFileSystem disk_;
  std::unique_ptr<Database> database_;
  std::unique_ptr<UploadStore> uploads_;
  std::unique_ptr<DataPreparer> preparer_;
  std::unique_ptr<DatasetStore> datasets_;
  std::unique_ptr<ModelStore> models_;
  Executor executor_{4};
  UnaryCalls calls_{executor_, clock_};
  std::unique_ptr<UploadService> upload_service_;
  std::unique_ptr<DatasetService> dataset_service_;
  std::unique_ptr<ModelService> model_service_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<v1::UploadService::Stub> uploads;
  std::unique_ptr<v1::DatasetService::Stub> datasets;
  std::unique_ptr<v1::ModelService::Stub> models;
};

TEST_F(CatalogServicesTest, AFileBecomesADataset) {
  std::string text;
  while (text.size() < (3 << 20)) text += kRow;
  v1::Upload upload = Start(text);
  const std::string name = upload.name();
  std::vector<v1::WriteUploadRequest> pieces;
  for (size_t at = 0; at < text.size(); at += 1 << 20) {
    pieces.push_back(
        Piece(at == 0 ? name : "", static_cast<int64_t>(at), text.substr(at, 1 << 20)));
  }
  ASSERT_TRUE(Write({pieces[0], pieces[1]}, &upload).ok());
  EXPECT_EQ(upload.committed_bytes(), 2 << 20);
  pieces[2].set_name(name);
  ASSERT_TRUE(Write({pieces.begin() + 2, pieces.end()}, &upload).ok());
  ASSERT_TRUE(Finalize(name, &upload).ok());
  EXPECT_TRUE(upload.finalized());

  v1::CreateDatasetRequest request;
  request.set_dataset_id("a");
  request.set_upload(name);
  request.set_request_id("6b1e7d3a-1d2b-4b53-8a37-111111111111");
  v1::Dataset dataset;
  ASSERT_TRUE(CreateDataset(request, &dataset).ok());
  EXPECT_EQ(dataset.state(), v1::DATASET_STATE_CHECKING);
  v1::Dataset again;
  ASSERT_TRUE(CreateDataset(request, &again).ok());
  EXPECT_EQ(again.uid(), dataset.uid());
  request.set_on_bad_row("skip");
  EXPECT_EQ(ReasonOf(CreateDataset(request, &again)), "REQUEST_ID_REUSED");
  dataset = WaitForDataset("datasets/a");
  EXPECT_EQ(dataset.state(), v1::DATASET_STATE_READY) << dataset.failure();
  EXPECT_EQ(dataset.row_count(), static_cast<int64_t>(text.size() / (sizeof(kRow) - 1)));
}

TEST_F(CatalogServicesTest, AWrongOffsetNamesTheRightOne) {
  v1::Upload upload = Start("0123456789");
  const std::string name = upload.name();
  const absl::Status status = Write({Piece(name, 0, "0123"), Piece("", 5, "56789")}, &upload);
  EXPECT_TRUE(absl::IsOutOfRange(status)) << status;
  EXPECT_EQ(ReasonOf(status), "WRONG_OFFSET");
  EXPECT_THAT(std::string(status.message()), HasSubstr("send from byte 4 on"));
  EXPECT_EQ(CommittedBytes(name), 4);
}

TEST_F(CatalogServicesTest, BadStreamsAreRefused) {
  v1::Upload upload = Start("0123456789");
  const std::string name = upload.name();
  EXPECT_TRUE(absl::IsInvalidArgument(Write({}, &upload)));
  EXPECT_TRUE(absl::IsInvalidArgument(Write({Piece("jobs/x", 0, "0")}, &upload)));
  EXPECT_TRUE(absl::IsNotFound(Write({Piece("uploads/x", 0, "0")}, &upload)));
  v1::WriteUploadRequest damaged = Piece(name, 0, "0123");
  damaged.set_crc32c(1);
  EXPECT_THAT(std::string(Write({damaged}, &upload).message()), HasSubstr("crc32c"));
  EXPECT_TRUE(
      absl::IsInvalidArgument(Write({Piece(name, 0, "0"), Piece("uploads/x", 1, "1")}, &upload)));
  EXPECT_TRUE(absl::IsResourceExhausted(
      Write({Piece(name, 0, std::string(5 << 20, 'x'))}, &upload)));  // gRPC's own limit
  EXPECT_EQ(CommittedBytes(name), 1);
}

TEST_F(CatalogServicesTest, ACancelledStreamKeepsWhatCameAndFreesTheUpload) {
  v1::Upload upload = Start("0123456789");
  const std::string name = upload.name();
  {
    grpc::ClientContext context;
    const auto stream = uploads->WriteUpload(&context, &upload);
    ASSERT_TRUE(stream->Write(Piece(name, 0, "0123")));
    context.TryCancel();
    EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::CANCELLED);
  }
  absl::Status status;
  do {
    const int64_t at = CommittedBytes(name);
    status = Write({Piece(name, at, std::string("0123456789").substr(static_cast<size_t>(at)))},
                   &upload);
    // The server may still be about to end the first stream.
  } while (absl::IsAborted(status) || absl::IsOutOfRange(status));
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_TRUE(Finalize(name, &upload).ok());
}

TEST_F(CatalogServicesTest, AHalfOpenStreamLetsTheServerStop) {
  v1::Upload upload = Start("0123456789");
  grpc::ClientContext context;
  const auto stream = uploads->WriteUpload(&context, &upload);
  ASSERT_TRUE(stream->Write(Piece(upload.name(), 0, "0123")));
  server_->Shutdown(std::chrono::system_clock::now());
  server_->Wait();
  EXPECT_FALSE(stream->Finish().ok());
}

TEST_F(CatalogServicesTest, EveryWrongFieldIsNamedAtOnce) {
  v1::CreateDatasetRequest request;
  request.set_dataset_id("Bad ID");
  request.set_upload("datasets/a");
  request.set_on_bad_row("ignore");
  v1::Dataset dataset;
  const absl::Status status = CreateDataset(request, &dataset);
  EXPECT_EQ(ReasonOf(status), "INVALID_FIELDS");
  for (const char* field : {"dataset_id", "upload", "on_bad_row"}) {
    EXPECT_THAT(std::string(status.message()), HasSubstr(field));
  }
  v1::StartUploadRequest start;
  start.set_size_bytes(-1);
  start.set_sha256("ABC");
  v1::Upload upload;
  const absl::Status start_status =
      Call(*uploads, &v1::UploadService::Stub::StartUpload, start, &upload);
  EXPECT_THAT(std::string(start_status.message()), HasSubstr("size_bytes"));
  EXPECT_THAT(std::string(start_status.message()), HasSubstr("sha256"));
  v1::GetModelVersionRequest get;
  get.set_name("models/a/versions/0");
  v1::ModelVersion version;
  EXPECT_TRUE(absl::IsInvalidArgument(
      Call(*models, &v1::ModelService::Stub::GetModelVersion, get, &version)));
}

TEST_F(CatalogServicesTest, ListsInPages) {
  const std::string upload = UploadText(kRow);
  for (const char* id : {"a", "b", "c"}) {
    v1::CreateDatasetRequest request;
    request.set_dataset_id(id);
    request.set_upload(upload);
    v1::Dataset dataset;
    ASSERT_TRUE(CreateDataset(request, &dataset).ok());
  }
  v1::ListDatasetsRequest request;
  request.set_page_size(2);
  v1::ListDatasetsResponse page;
  ASSERT_TRUE(Call(*datasets, &v1::DatasetService::Stub::ListDatasets, request, &page).ok());
  ASSERT_EQ(page.datasets_size(), 2);
  EXPECT_EQ(page.datasets(0).name(), "datasets/c");
  request.set_page_token(page.next_page_token());
  ASSERT_TRUE(Call(*datasets, &v1::DatasetService::Stub::ListDatasets, request, &page).ok());
  ASSERT_EQ(page.datasets_size(), 1);
  EXPECT_EQ(page.datasets(0).name(), "datasets/a");
  EXPECT_EQ(page.next_page_token(), "");
  v1::ListModelVersionsRequest other;
  other.set_page_token(request.page_token());
  v1::ListModelVersionsResponse versions;
  EXPECT_TRUE(absl::IsInvalidArgument(
      Call(*models, &v1::ModelService::Stub::ListModelVersions, other, &versions)));
}

TEST_F(CatalogServicesTest, AModelComesInAndGoesOut) {
  const auto config = TestConfig(/*tied=*/true);
  const std::string made =
      WriteModelFolder("model", config, RandomTensors(config, TensorDtype::kBf16, 1));
  WriteTextFile(made + "/tokenizer.json", "{}");
  const std::string source = folder_ + "/allowed/model";
  std::filesystem::rename(made, source);

  v1::ImportModelRequest request;
  request.set_model_id("toy");
  request.set_path(source);
  request.set_validate_only(true);
  v1::ModelVersion version;
  ASSERT_TRUE(Call(*models, &v1::ModelService::Stub::ImportModel, request, &version).ok());
  v1::ListModelVersionsRequest list;
  list.set_parent("models/-");
  v1::ListModelVersionsResponse versions;
  ASSERT_TRUE(Call(*models, &v1::ModelService::Stub::ListModelVersions, list, &versions).ok());
  EXPECT_EQ(versions.model_versions_size(), 0);

  request.set_validate_only(false);
  ASSERT_TRUE(Call(*models, &v1::ModelService::Stub::ImportModel, request, &version).ok());
  EXPECT_EQ(WaitForModel(version.name()).state(), v1::MODEL_STATE_READY);
  ASSERT_TRUE(Call(*models, &v1::ModelService::Stub::ListModelVersions, list, &versions).ok());
  EXPECT_EQ(versions.model_versions_size(), 1);

  v1::ExportModelRequest out;
  out.set_name("models/toy");
  out.set_path(folder_ + "/allowed/out");
  v1::ExportModelResponse exported;
  ASSERT_TRUE(Call(*models, &v1::ModelService::Stub::ExportModel, out, &exported).ok());
  EXPECT_EQ(exported.name(), "models/toy/versions/1");
  EXPECT_EQ(ReadWholeFile(exported.path() + "/model.safetensors"),
            ReadWholeFile(source + "/model.safetensors"));
  EXPECT_EQ(ReasonOf(Call(*models, &v1::ModelService::Stub::ExportModel, out, &exported)),
            "PATH_EXISTS");
  request.set_path("/etc");
  EXPECT_EQ(ReasonOf(Call(*models, &v1::ModelService::Stub::ImportModel, request, &version)),
            "PATH_NOT_ALLOWED");
}

TEST_F(CatalogServicesTest, ADrainingServerTakesNothing) {
  v1::Upload upload = Start("0123456789");
  calls_.Drain();
  EXPECT_TRUE(absl::IsUnavailable(Write({Piece(upload.name(), 0, "0123")}, &upload)));
  v1::ImportModelRequest request;
  v1::ModelVersion version;
  EXPECT_TRUE(
      absl::IsUnavailable(Call(*models, &v1::ModelService::Stub::ImportModel, request, &version)));
}

}  // namespace
}  // namespace megatrain
