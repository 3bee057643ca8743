package waypost.interop;

import com.google.protobuf.StringValue;
import io.grpc.InsecureServerCredentials;
import io.grpc.Server;
import io.grpc.ServerServiceDefinition;
import io.grpc.stub.ServerCalls;
import io.grpc.xds.XdsServerBuilder;
import io.grpc.xds.XdsServerBuilder.XdsServingStatusListener;
import io.grpc.xds.XdsServerCredentials;
import java.util.concurrent.TimeUnit;

/**
 * An xDS-enabled server that answers with its own name, until SIGTERM. Says "serving PORT" whenever it
 * begins to serve, and "not serving PORT: WHY" whenever it ceases to.
 *
 * <p>It listens on every address, since XdsServerBuilder takes none; {@code --host} is for its name.
 */
final class Greeter {
  private static final long STOP_SECONDS_MAX = 10;

  static void run(Main.Flags flags) throws Exception {
    int port = Integer.parseInt(flags.text("--port"));
    StringValue name = StringValue.of(flags.text("--host", "127.0.0.1") + ":" + port);
    ServerServiceDefinition greeter =
        ServerServiceDefinition.builder(Main.SERVICE)
            .addMethod(
                Main.HELLO,
                ServerCalls.asyncUnaryCall(
                    (request, answer) -> {
                      answer.onNext(name);
                      answer.onCompleted();
                    }))
            .build();
    Server server =
        XdsServerBuilder.forPort(
                port, XdsServerCredentials.create(InsecureServerCredentials.create()))
            .xdsServingStatusListener(new Status(port))
            .addService(greeter)
            .build();
    Runtime.getRuntime().addShutdownHook(new Thread(() -> stop(server)));
    // Returns once it has served for the first time.
    server.start();
    server.awaitTermination();
  }

  private static void stop(Server server) {
    try {
      server.shutdown().awaitTermination(STOP_SECONDS_MAX, TimeUnit.SECONDS);
    } catch (InterruptedException error) {
      Thread.currentThread().interrupt();
    }
    Runtime.getRuntime().halt(0);
  }

  private static final class Status implements XdsServingStatusListener {
    private final int port;

    Status(int port) {
      this.port = port;
    }

    @Override
    public void onServing() {
      System.out.println("serving " + port);
    }

    @Override
    public void onNotServing(Throwable why) {
      System.out.println("not serving " + port + ": " + why.getMessage());
    }
  }

  private Greeter() {}
}
