// A mutating request as its repeats are recognised.

#ifndef SERVER_DATABASE_REQUEST_KEY_H_
#define SERVER_DATABASE_REQUEST_KEY_H_

#include <string>

namespace megatrain {

struct RequestKey {
  std::string method;      // such as "CreateJob"
  std::string request_id;  // the client's; empty: no repeat is recognised
  std::string payload;     // the request's bytes in a fixed order
};

}  // namespace megatrain

#endif  // SERVER_DATABASE_REQUEST_KEY_H_
