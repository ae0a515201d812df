// The verbs of models and data sets, from the command line to a scripted server.

#include <atomic>

#include "client/cli/app_for_test.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace megatrain {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

using AppCatalogTest = AppTest;

TEST_F(AppCatalogTest, ImportWaitsAndTellsAFailure) {
  std::atomic<int> asked = 0;
  server_.models.import_model = [](const v1::ImportModelRequest& request,
                                   v1::ModelVersion& version) {
    EXPECT_EQ(request.model_id(), "toy");
    EXPECT_THAT(request.path(), StartsWith("/")) << "absolute";
    version.set_name("models/toy/versions/1");
    version.set_state(v1::MODEL_STATE_IMPORTING);
    return grpc::Status::OK;
  };
  server_.models.get = [&](const v1::GetModelVersionRequest& request, v1::ModelVersion& version) {
    version.set_name(request.name());
    version.set_trainable(true);
    version.set_state(asked++ == 0 ? v1::MODEL_STATE_IMPORTING : v1::MODEL_STATE_READY);
    if (asked > 2) {
      version.set_state(v1::MODEL_STATE_FAILED);
      version.set_failure("model.safetensors is truncated");
    }
    return grpc::Status::OK;
  };
  StartServer();
  EXPECT_EQ(Run({"model", "import", "toy_folder", "--name", "models/toy", "--wait"}), 0) << err();
  EXPECT_EQ(out(), "models/toy/versions/1 READY\n");
  EXPECT_EQ(Run({"model", "import", "toy_folder", "--name", "toy", "--wait"}), 1);
  EXPECT_THAT(err(), AllOf(HasSubstr("error: model.safetensors is truncated"),
                           HasSubstr("reason: IMPORT_FAILED")));
  EXPECT_EQ(Run({"model", "import", "toy_folder", "--name", "toy"}), 0);
  EXPECT_EQ(out(), "models/toy/versions/1 IMPORTING\n");
}

TEST_F(AppCatalogTest, ExportPrintsThePath) {
  server_.models.export_model = [](const v1::ExportModelRequest& request,
                                   v1::ExportModelResponse& response) {
    response.set_name(request.name());
    response.set_path(request.path());
    return grpc::Status::OK;
  };
  StartServer();
  EXPECT_EQ(Run({"model", "export", "toy", "/tmp/out"}), 0);
  EXPECT_EQ(out(), "/tmp/out\n");
  EXPECT_THAT(err(), HasSubstr("models/toy: 0 B written"));
}

TEST_F(AppCatalogTest, DatasetUploadSendsChecksAndNamesABadRow) {
  v1::DatasetState state = v1::DATASET_STATE_READY;
  server_.datasets.create = [&](const v1::CreateDatasetRequest& request, v1::Dataset& dataset) {
    EXPECT_EQ(request.dataset_id(), "d");
    EXPECT_EQ(request.on_bad_row(), "skip");
    dataset.set_name("datasets/d");
    dataset.set_state(v1::DATASET_STATE_CHECKING);
    return grpc::Status::OK;
  };
  server_.datasets.get = [&](const v1::GetDatasetRequest&, v1::Dataset& dataset) {
    dataset.set_name("datasets/d");
    dataset.set_state(state);
    dataset.set_row_count(3);
    dataset.set_failure("line 2: bad JSON");
    return grpc::Status::OK;
  };
  StartServer();
  const std::string file = FileOf("rows.jsonl", "{}\n{}\n{}\n");
  const std::vector<std::string> arguments = {"dataset", "upload",       file,  "--name",
                                              "d",       "--on-bad-row", "skip"};
  EXPECT_EQ(Run(arguments), 0) << err();
  EXPECT_EQ(out(), "datasets/d\n");
  EXPECT_THAT(err(), HasSubstr("3 rows"));
  EXPECT_EQ(Run(arguments), 0);
  EXPECT_THAT(err(), HasSubstr("already there"));
  state = v1::DATASET_STATE_FAILED;
  EXPECT_EQ(Run(arguments), 1);
  EXPECT_THAT(err(), HasSubstr("rows.jsonl: line 2: bad JSON"));
  EXPECT_EQ(Run({"dataset", "upload", folder_ + "/absent", "--name", "d"}), 3);
}

TEST_F(AppCatalogTest, ListsOfModelsAndDatasets) {
  server_.models.list = [](const v1::ListModelVersionsRequest&,
                           v1::ListModelVersionsResponse& response) {
    response.add_model_versions()->set_name("models/m/versions/1");
    return grpc::Status::OK;
  };
  server_.datasets.list = [](const v1::ListDatasetsRequest&, v1::ListDatasetsResponse& response) {
    response.add_datasets()->set_name("datasets/d");
    return grpc::Status::OK;
  };
  StartServer();
  EXPECT_EQ(Run({"model", "ls", "-o", "name"}), 0);
  EXPECT_EQ(out(), "models/m/versions/1\n");
  EXPECT_EQ(Run({"dataset", "ls", "-o", "json"}), 0);
  EXPECT_EQ(nlohmann::json::parse(out())["datasets"][0]["name"], "datasets/d");
  EXPECT_EQ(Run({"model", "ls"}), 0);
  EXPECT_THAT(out(), StartsWith("MODEL"));
}

}  // namespace
}  // namespace megatrain
