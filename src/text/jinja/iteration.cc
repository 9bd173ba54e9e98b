#include "text/jinja/iteration.h"

#include "base/utf8.h"
#include "text/jinja/dict.h"
#include "text/jinja/operations.h"

namespace bl::jinja {

bool is_iterable(const Value& value) {
  switch (value.kind) {
    case Kind::kUndefined:
    case Kind::kString:
    case Kind::kTuple:
    case Kind::kList:
    case Kind::kDict:
    case Kind::kRange:
    case Kind::kIterator:
    case Kind::kDictView:
      return true;
    default:
      return false;
  }
}

Cursor::Cursor(Runtime& rt, const Value& iterable) : rt_(rt), source_(iterable) {
  if (!is_iterable(iterable)) rt.fail("'{}' object is not iterable", type_name(iterable));
  if (iterable.is_sequence()) items_ = iterable.list();
  if (iterable.is(Kind::kDictView)) items_ = view_items(rt, *iterable.view);
}

bool Cursor::next(Value& item) {
  switch (source_.kind) {
    case Kind::kTuple:
    case Kind::kList:
    case Kind::kDictView:
      if (position_ == items_.size()) return false;
      item = items_[position_++];
      break;
    case Kind::kDict:
      if (position_ == source_.dict->size) return false;
      item = source_.dict->entries[position_++].key;
      break;
    case Kind::kString: {
      if (position_ == source_.size) return false;
      const std::size_t size = utf8_size(source_.text[position_]);
      item = Value::string(source_.str().substr(position_, size));
      position_ += size;
      break;
    }
    case Kind::kRange:
      if (static_cast<std::int64_t>(position_) == source_.range->size) return false;
      item = source_.range->at(static_cast<std::int64_t>(position_++));
      break;
    case Kind::kIterator:
      if (source_.iterator->position == source_.iterator->items.size()) return false;
      item = source_.iterator->items[source_.iterator->position++];
      break;
    default:
      return false;
  }
  rt_.step();
  return true;
}

std::span<const Value> items_of(Runtime& rt, const Value& iterable) {
  if (iterable.is_sequence()) return iterable.list();
  if (iterable.is(Kind::kIterator)) {
    Iterator& iterator = *iterable.iterator;
    const auto rest = iterator.items.subspan(iterator.position);
    iterator.position = iterator.items.size();
    return rest;
  }
  Cursor cursor(rt, iterable);
  ValueVector items = rt.vector();
  if (const auto count = length_of(iterable)) items.reserve(*count);
  for (Value item; cursor.next(item);) items.push_back(item);
  return Runtime::keep(items);
}

}  // namespace bl::jinja
