// The command line itself: usage, help, errors, colours, the server.

#include "client/cli/app.h"

#include "client/cli/app_for_test.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace megatrain {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

TEST_F(AppTest, HelpIsDataAndNamesTheExitCodes) {
  EXPECT_EQ(Run({"--help"}), 0);
  EXPECT_THAT(out(), AllOf(HasSubstr("submit"), HasSubstr("Exit codes:")));
  EXPECT_THAT(err(), IsEmpty());
  EXPECT_EQ(Run({"submit", "--help"}), 0);
  EXPECT_THAT(out(), HasSubstr("--follow"));
}

TEST_F(AppTest, WrongUsageNamesTheHelpThatThereIs) {
  EXPECT_EQ(Run({"model", "import", "/some/folder"}), 2);
  EXPECT_THAT(err(), HasSubstr("try: megatrain model import --help"));
}

TEST_F(AppTest, AnUnknownFlagNamesTheNearestOne) {
  EXPECT_EQ(Run({"submit", job_file_, "--folow"}), 2);
  EXPECT_EQ(err(),
            "error: unknown flag --folow\ntry: --follow, the nearest known flag\nreason: USAGE\n");
  EXPECT_THAT(out(), IsEmpty());
  EXPECT_EQ(Run({"submit", "--dry-rum"}), 2) << "also when the file is missing";
  EXPECT_THAT(err(), HasSubstr("--dry-run, the nearest known flag"));
  EXPECT_EQ(Run({"ps", "--adress=x"}), 2) << "a flag of all verbs";
  EXPECT_THAT(err(), HasSubstr("try: --address"));
}

TEST_F(AppTest, AnUnknownVerbNamesTheNearestOne) {
  EXPECT_EQ(Run({"sumbit", job_file_}), 2);
  EXPECT_THAT(err(), HasSubstr("unknown command sumbit\ntry: submit, the nearest known command"));
  EXPECT_EQ(Run({"model", "imprt", "x"}), 2);
  EXPECT_THAT(err(), HasSubstr("try: import"));
}

TEST_F(AppTest, OtherMistakesOfUsage) {
  EXPECT_EQ(Run({}), 2);
  EXPECT_THAT(err(), StartsWith("error: "));
  EXPECT_EQ(Run({"submit"}), 2);
  EXPECT_THAT(err(), HasSubstr("FILE is required"));
  EXPECT_EQ(Run({"submit", job_file_, "--follow", "--wait"}), 2);
  EXPECT_EQ(Run({"ps", "-o", "xml"}), 2);
  EXPECT_EQ(Run({"ps", "--address", "nowhere"}), 2);
  EXPECT_THAT(err(), HasSubstr("\"nowhere\" is no address"));
  EXPECT_EQ(Run({"plan"}), 2);
}

TEST_F(AppTest, AJobFileWithAnUnknownKeyIsUsage) {
  const std::string file = FileOf("bad.yaml", "model: models/m\ntrian: {steps: 1}\n");
  EXPECT_EQ(Run({"submit", file}), 2);
  EXPECT_THAT(err(), AllOf(HasSubstr("bad.yaml:2: unknown key trian"),
                           HasSubstr("try: train, the nearest known key"),
                           HasSubstr("reason: INVALID_JOB_FILE")));
  EXPECT_EQ(Run({"submit", folder_ + "/absent.yaml"}), 3);
}

TEST_F(AppTest, AnAbsentServerIsUnavailable) {
  variables_["MEGATRAIN_ADDRESS"] = "unix:/nowhere/nobody.sock";
  EXPECT_EQ(Run({"ps", "--timeout", "0.5"}), 9) << err();
  EXPECT_EQ(Run({"watch", "a"}), 8);
  EXPECT_THAT(err(), AllOf(HasSubstr("cannot reach a server at unix:"), HasSubstr("try: start")));
}

TEST_F(AppTest, ColourFollowsTerminalFlagAndNoColor) {
  environment_.err_is_terminal = true;
  EXPECT_EQ(Run({"submit", "/absent"}), 3);
  EXPECT_THAT(err(), HasSubstr("\x1b[1;31merror:"));
  variables_["NO_COLOR"] = "1";
  Run({"submit", "/absent"});
  EXPECT_THAT(err(), StartsWith("error: "));
  Run({"submit", "/absent", "--color", "always"});
  EXPECT_THAT(err(), HasSubstr("\x1b[1;31merror:"));
}

TEST_F(AppTest, ServerShowsItsState) {
  server_.status.get = [](const v1::GetServerRequest&, v1::Server& server) {
    server.set_state(v1::SERVER_STATE_READY);
    server.set_engine_backend("cpu");
    return grpc::Status::OK;
  };
  StartServer();
  EXPECT_EQ(Run({"server"}), 0);
  EXPECT_THAT(out(), AllOf(HasSubstr("state:          READY"), HasSubstr("engine:         cpu")));
}

}  // namespace
}  // namespace megatrain
