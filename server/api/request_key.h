// How repeats of a mutating request are recognised.

#ifndef SERVER_API_REQUEST_KEY_H_
#define SERVER_API_REQUEST_KEY_H_

#include <string>
#include <utility>

#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "server/database/request_key.h"

namespace megatrain {

// The key of `request`, which has a field `request_id`.
template <typename Request>
RequestKey MakeRequestKey(const std::string& method, Request request) {
  RequestKey key{method, request.request_id(), ""};
  request.clear_request_id();
  google::protobuf::io::StringOutputStream stream(&key.payload);
  google::protobuf::io::CodedOutputStream coded(&stream);
  coded.SetSerializationDeterministic(true);  // maps have no order of their own
  request.SerializeToCodedStream(&coded);
  coded.Trim();
  return key;
}

}  // namespace megatrain

#endif  // SERVER_API_REQUEST_KEY_H_
