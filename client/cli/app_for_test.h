// For tests: the whole CLI, from the command line to a scripted server.

#ifndef CLIENT_CLI_APP_FOR_TEST_H_
#define CLIENT_CLI_APP_FOR_TEST_H_

#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "client/cli/environment.h"
#include "client/lib/interruption.h"
#include "client/lib/scripted_server.h"
#include "gtest/gtest.h"
#include "runtime/base/clock.h"

namespace megatrain {

// jobs/a in `state`, and the events of a watch of it.
v1::Job MakeJob(v1::JobState state);
v1::JobEvent SnapshotOf(v1::JobState state);
v1::JobEvent StepEvent(int64_t step, double loss);
v1::JobEvent FinalOf(v1::JobState state);

class AppTest : public ::testing::Test {
 protected:
  AppTest();

  // A file in folder_. Returns its path.
  std::string FileOf(const std::string& name, const std::string& content) const;

  // Runs a command line, against the scripted server once it is started. Returns the exit code.
  int Run(const std::vector<std::string>& arguments);

  void StartServer();

  // CreateJob accepts; WatchJob ends in `state`.
  void AcceptJobs(v1::JobState state);

  std::string out() const { return out_.str(); }
  std::string err() const { return err_.str(); }

  std::string folder_;
  std::string job_file_;
  std::map<std::string, std::string> variables_;
  std::ostringstream out_;
  std::ostringstream err_;
  SystemClock clock_;
  Interruption interruption_;
  Environment environment_{
      .out = out_,
      .err = err_,
      .variable = [this](const char* name) { return variables_[name]; },
      .clock = clock_,
      .interruption = interruption_,
  };
  std::vector<v1::CreateJobRequest> created_;
  bool server_started_ = false;
  ScriptedServer server_;
};

}  // namespace megatrain

#endif  // CLIENT_CLI_APP_FOR_TEST_H_
