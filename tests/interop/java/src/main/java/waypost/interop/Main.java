package waypost.interop;

import com.google.protobuf.StringValue;
import io.grpc.MethodDescriptor;
import io.grpc.protobuf.ProtoUtils;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/**
 * A client and an xDS-enabled server of grpc-java, unmodified, for the proofs.
 *
 * <pre>
 * Main call  --target xds:///NAME --out FILE [--rate N] [--concurrency N] [--deadline S] [--first S]
 * Main serve --port PORT [--host IP]
 * </pre>
 *
 * <p>GRPC_XDS_BOOTSTRAP in the environment names the bootstrap file. The other languages' programs take
 * the same words and write the same lines.
 */
public final class Main {
  static final String SERVICE = "waypost.test.Greeter";

  static final MethodDescriptor<StringValue, StringValue> HELLO =
      MethodDescriptor.<StringValue, StringValue>newBuilder()
          .setType(MethodDescriptor.MethodType.UNARY)
          .setFullMethodName(MethodDescriptor.generateFullMethodName(SERVICE, "Hello"))
          .setRequestMarshaller(ProtoUtils.marshaller(StringValue.getDefaultInstance()))
          .setResponseMarshaller(ProtoUtils.marshaller(StringValue.getDefaultInstance()))
          .build();

  public static void main(String[] args) throws Exception {
    String program = args.length == 0 ? "" : args[0];
    Flags flags = new Flags(Arrays.asList(args).subList(Math.min(1, args.length), args.length));
    switch (program) {
      case "call":
        Caller.run(flags);
        break;
      case "serve":
        Greeter.run(flags);
        break;
      default:
        System.err.println("usage: Main call|serve [FLAGS]");
        System.exit(2);
    }
  }

  /** {@code --NAME VALUE} pairs. */
  static final class Flags {
    private final Map<String, String> byName = new HashMap<>();

    Flags(List<String> words) {
      for (int i = 0; i + 1 < words.size(); i += 2) {
        byName.put(words.get(i), words.get(i + 1));
      }
    }

    String text(String name) {
      String value = byName.get(name);
      if (value == null) {
        throw new IllegalArgumentException(name + " is missing");
      }
      return value;
    }

    String text(String name, String otherwise) {
      return byName.getOrDefault(name, otherwise);
    }

    double number(String name, double otherwise) {
      return Double.parseDouble(text(name, Double.toString(otherwise)));
    }
  }

  private Main() {}
}
