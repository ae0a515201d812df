#include <memory>
#include <string>

#include "client/cli/follow_output.h"
#include "client/cli/text.h"
#include "client/cli/verbs.h"

namespace megatrain {

void AddWatch(CLI::App& app, Verb& chosen) {
  auto job = std::make_shared<std::string>();
  CLI::App* verb = app.add_subcommand("watch", "Shows a job's progress until it ends");
  verb->add_option("JOB", *job, "The job's name")->required();
  verb->footer("Ctrl-C detaches; the job goes on. With -o json each event is a line.");
  verb->callback([job, &chosen] {
    chosen = [job](Session& session) {
      return FollowToTheEnd(session, FullName("jobs", *job), FollowStyle::kEvents);
    };
  });
}

}  // namespace megatrain
