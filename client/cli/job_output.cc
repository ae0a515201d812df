#include "client/cli/job_output.h"

#include <ostream>
#include <string>

#include "client/cli/text.h"

namespace megatrain {

void PrintJobState(Session& session, const v1::Job& job) {
  if (session.wants_json()) {
    session.PrintJson(job);
  } else if (session.wants_names()) {
    session.out() << job.name() << std::endl;
  } else {
    session.out() << job.name() << " " << StateWords(job) << std::endl;
  }
}

void PrintAdvice(Session& session, const v1::Job& job) {
  for (const std::string& line : Advice(job, CommandsOf(session))) {
    session.err() << Printable(line) << "\n";
  }
  session.err().flush();
}

CommandText CommandsOf(const Session& session) {
  return [&session](const std::string& verb) { return session.Command(verb); };
}

}  // namespace megatrain
